// Data for the pages, made over HTTP as any caller would make it.

/** Runs in every state, keys with duplicates and conflicts, a schedule; gives what tests look for. */
export async function seed(stage) {
  const made = {};
  made.order = await stage.run("order", { customer: "ada" }, "order-1841");
  for (let i = 0; i < 5; i++) await stage.run("order", { customer: "ada" }, "order-1841");
  const other = await stage.api("POST", "workflows/order/runs", { body: { input: { customer: "bob" } }, key: "order-1841" });
  if (other.status !== 422) throw new Error(`another input under the same key: ${other.status} ${other.text}`);
  for (let i = 0; i < 12; i++) await stage.run("order", { customer: i }, `order-${2000 + i}`);
  made.broken = await stage.run("broken", null, "broken-1");
  for (let i = 0; i < 3; i++) await stage.run("broken");
  made.approval = await stage.run("approval", { amount: 12 }, "expense-7");
  made.family = await stage.run("family");
  made.sleepy = await stage.run("sleepy");
  made.unserved = await stage.run("nobody-serves-this", null, "lonely");
  const schedule = { workflow: "echo", spec: { cron: { cron: "0 3 * * *", time_zone: "UTC" } }, input: { since: "yesterday" } };
  const put = await stage.api("PUT", "schedules/nightly-report", { body: schedule });
  if (put.status >= 300) throw new Error(`schedule: ${put.status} ${put.text}`);
  await stage.reaches(made.order, "completed");
  await stage.reaches(made.family, "completed");
  await stage.reaches(made.broken, "failed");
  await stage.reaches(made.approval, "waiting");
  await stage.reaches(made.sleepy, "waiting");
  return made;
}
