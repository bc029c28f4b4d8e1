// A server that hides payloads, and one that shows of them what its hook makes of them: nothing else comes
// into the browser, on any page.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isCall, openBrowser, openPage, seen, settled, Stage } from "./stage.mjs";

const SECRET = "the-launch-code-7319";
let browser;

before(async () => {
  browser = await openBrowser();
});

after(() => browser?.close());

/** A store with the secret in every place of a payload, and a server over it until the end of the test. */
async function filled(t, kind) {
  const stage = await Stage.open({ kind });
  t.after(() => stage.close());
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

/** Pages that show no payload themselves, and may have one in what they fetch; each with what it shows once it has that. */
const others = ({ failed }) => [
  ["", "confided-1"],
  ["runs", "confided-1"],
  ["errors", "it is out"],
  ["keys?tab=steps", "confided"],
  ["waiting", "Nothing waits"],
  ["schedules", "confided"],
  ["workflows/confide", "keep"],
  [`runs/${failed}`, "keep"],
  [`runs/${failed}?tab=attempts`, "No try failed"],
  [`runs/${failed}?tab=log`, "the workflow"],
  [`runs/${failed}?tab=key`, "No duplicates"],
];

/** A page, and whatever the server answers it. */
async function listen() {
  const page = await openPage(browser);
  let coming = [];
  page.on("response", (response) => {
    if (isCall(response.request())) coming.push(response.text().catch(() => ""));
  });
  /** The answers so far, once the page has all that it asked for. They are lost with the page, so this comes before the next one. */
  const answers = async () => {
    await settled(page);
    const texts = await Promise.all(coming);
    coming = [];
    return texts;
  };
  return { page, answers };
}

/** Goes through all pages; gives what was to be seen, payload by payload and then of the others, and every answer. */
async function walk(made) {
  const { page, answers } = await listen();
  const [shown, rest, sent] = [[], [], []];
  for (const [path, title, button] of payloads(made)) {
    await page.goto(made.stage.url + path);
    if (button) await page.getByRole("button", { name: button, exact: true }).click();
    const payload = page.locator(".payload, .failure .payload").filter({ has: page.getByRole("heading", { name: title, exact: true }) }).last();
    await payload.waitFor();
    sent.push(...(await answers()));
    shown.push(await payload.innerText());
  }
  for (const [path, text] of others(made)) {
    await page.goto(made.stage.url + path);
    await seen(page, text).waitFor();
    sent.push(...(await answers()));
    rest.push(await page.locator("main").innerText());
  }
  assert.deepEqual(page.troubles, []);
  await page.context().close();
  return { shown, rest: rest.join("\n"), answers: sent.join("\n") };
}

test("where nothing is hidden, every place shows its payload", async (t) => {
  const made = await filled(t, "serve");
  const { shown, rest, answers } = await walk(made);
  for (const text of [...shown, answers]) assert.ok(text.includes(SECRET), text);
  assert.ok(rest.includes(`confided: {"code":"${SECRET}"}`), "the log");
});

test("a server that hides payloads says so in their place, and sends none", async (t) => {
  const made = await filled(t, "hidden");
  const { shown, rest, answers } = await walk(made);
  for (const text of shown) assert.match(text, /Payloads are hidden on this server\./);
  for (const text of [rest, answers]) assert.ok(text.includes("confide") && !text.includes(SECRET), "it came into the browser");
});

test("the hook decides what is shown of a payload, by its place", async (t) => {
  const made = await filled(t, "redacted");
  const { shown, rest, answers } = await walk(made);
  const places = ["Input", "Output", "Record", "Details", "Record", "StepKey", "Input"];
  shown.forEach((text, i) => assert.ok(text.includes(`left out: ${places[i]}`), text));
  assert.ok(rest.includes("left out: Log"), rest);
  for (const text of [rest, answers]) assert.ok(!text.includes(SECRET), "it came into the browser");
});
