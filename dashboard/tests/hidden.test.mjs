// A server that hides payloads, and one that shows of them what its hook makes of them: nothing else comes
// into the browser, on any page.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openBrowser, openPage, quiet, Stage } from "./stage.mjs";

const SECRET = "the-launch-code-7319";
let browser;

before(async () => {
  browser = await openBrowser();
});

after(() => browser?.close());

/** A store with the secret in every place of a payload. */
async function filled(kind) {
  const stage = await Stage.open({ kind });
  const failed = await stage.run("confide", { code: SECRET }, "confided-1");
  await stage.reaches(failed, "waiting");
  await stage.api("POST", `runs/${failed}/signals`, { body: { name: "answer", value: { code: SECRET } } });
  await stage.reaches(failed, "failed");
  const done = await stage.run("echo", { code: SECRET });
  await stage.reaches(done, "completed");
  const spec = { every: { every_ms: 3_600_000, anchor: 0 } };
  await stage.api("PUT", "schedules/confided", { body: { workflow: "echo", spec, input: { code: SECRET } } });
  return { stage, failed, done };
}

/** Each payload: its page, its title, and what is pressed to see it. */
const payloads = ({ failed, done }) => [
  [`runs/${done}?tab=data`, "Input"],
  [`runs/${done}?tab=data`, "Output"],
  [`runs/${done}?step=repeat`, "Result"],
  [`runs/${failed}?tab=data`, "Details"],
  [`runs/${failed}?tab=history`, "Value", "answer"],
  ["step-keys/confided", "Result"],
  ["schedules/confided", "Input"],
];

/** Pages that show no payload themselves, and may have one in what they fetch. */
const others = ({ failed }) => ["", "runs", "errors", "keys?tab=steps", "waiting", "schedules", "workflows/confide", `runs/${failed}`, `runs/${failed}?tab=attempts`, `runs/${failed}?tab=log`, `runs/${failed}?tab=key`];

/** Goes through all pages; gives what was to be seen, payload by payload and then of the others, and every answer. */
async function walk(made) {
  const page = await openPage(browser);
  const [seen, answers] = [[], []];
  page.on("response", (response) => {
    const ends = response.url().includes("/api/v1/") && !response.url().includes("/stream");
    if (ends) answers.push(response.text().catch(() => ""));
  });
  for (const [path, title, button] of payloads(made)) {
    await page.goto(made.stage.url + path);
    if (button) await page.getByRole("button", { name: button, exact: true }).click();
    const payload = page.locator(".payload, .failure .payload").filter({ has: page.getByRole("heading", { name: title, exact: true }) }).last();
    await payload.waitFor();
    seen.push(await payload.innerText());
  }
  const rest = [];
  for (const path of others(made)) {
    await page.goto(made.stage.url + path);
    await page.locator("h1").waitFor();
    await quiet(page);
    rest.push(await page.locator("main").innerText());
  }
  assert.deepEqual(page.troubles, []);
  await page.context().close();
  return { seen, rest: rest.join("\n"), answers: (await Promise.all(answers)).join("\n") };
}

test("where nothing is hidden, every place shows its payload", async () => {
  const made = await filled("serve");
  const { seen, rest } = await walk(made);
  for (const text of seen) assert.ok(text.includes(SECRET), text);
  assert.ok(rest.includes(`confided: {"code":"${SECRET}"}`), "the log");
  await made.stage.close();
});

test("a server that hides payloads says so in their place, and sends none", async () => {
  const made = await filled("hidden");
  const { seen, rest, answers } = await walk(made);
  for (const text of seen) assert.match(text, /Payloads are hidden on this server\./);
  for (const text of [rest, answers]) assert.ok(text.includes("confide") && !text.includes(SECRET), "it came into the browser");
  await made.stage.close();
});

test("the hook decides what is shown of a payload, by its place", async () => {
  const made = await filled("redacted");
  const { seen, rest, answers } = await walk(made);
  const places = ["Input", "Output", "Record", "Details", "Record", "StepKey", "Input"];
  seen.forEach((text, i) => assert.ok(text.includes(`left out: ${places[i]}`), text));
  assert.ok(rest.includes("left out: Log"), rest);
  for (const text of [rest, answers]) assert.ok(!text.includes(SECRET), "it came into the browser");
  await made.stage.close();
});
