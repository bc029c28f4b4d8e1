import assert from "node:assert/strict";
import { test } from "node:test";
import { readViews, VIEW_NAME_MAX, VIEWS_MAX, withView } from "../src/views";

test("what is not a view is passed over", () => {
  assert.deepEqual(readViews(null), []);
  assert.deepEqual(readViews("{"), []);
  assert.deepEqual(readViews('{"name": "a"}'), []);
  assert.deepEqual(readViews('[1, null, {"name": "a"}, {"name": "b", "query": "state=failed"}]'), [{ name: "b", query: "state=failed" }]);
});

test("a view takes the place of the one with its name", () => {
  const [a, b] = [{ name: "a", query: "state=failed" }, { name: "b", query: "queue=mail" }];
  assert.deepEqual(withView([a, b], { name: " a ", query: "key=1" }), [b, { name: "a", query: "key=1" }]);
  assert.deepEqual(withView([a], { name: "  ", query: "key=1" }), [a]);
});

test("views and their names are bounded", () => {
  const many = Array.from({ length: VIEWS_MAX + 3 }, (_, at) => ({ name: `view ${at}`, query: "" })).reduce(withView, [] as { name: string; query: string }[]);
  assert.equal(many.length, VIEWS_MAX);
  assert.equal(many[0]?.name, "view 3");
  assert.equal(withView([], { name: "x".repeat(99), query: "" })[0]?.name.length, VIEW_NAME_MAX);
});
