import assert from "node:assert/strict";
import { test } from "node:test";
import { Exact, isLarge, JsonError, parse, write, type Json } from "../src/api/json";

test("integers above 2^53 survive reading and writing", () => {
  for (const text of ["9007199254740993", "-9007199254740993", "18446744073709551615", "123456789012345678901234567890"]) {
    const value = parse(text);
    assert.ok(value instanceof Exact && isLarge(value));
    assert.equal(write(value), text);
  }
});

test("fractions and exponents are written as they were read", () => {
  for (const text of ["1.0", "12.50", "1e2", "1E+400", "0.1234567890123456789", "-0", "-0.0"]) assert.equal(write(parse(text)), text);
});

test("what JavaScript holds exactly is a plain number", () => {
  for (const [text, value] of [["0", 0], ["-1", -1], ["9007199254740991", 9007199254740991], ["1.5", 1.5]] as const) assert.equal(parse(text), value);
});

test("it reads what JSON.parse reads", () => {
  const texts = ['{"a":[1,2,{"b":null}],"c":"x\\n\\u00e9\\ud83d\\ude00","d":true,"e":false,"":{}}', " [ ] ", '"\\\\\\/\\b\\f\\r\\t"', "{}"];
  for (const text of texts) assert.deepEqual(parse(text), JSON.parse(text));
});

test("a name cannot change the prototype", () => {
  const value = parse('{"__proto__":{"polluted":true}}') as { [name: string]: Json };
  assert.equal((value as { polluted?: boolean }).polluted, undefined);
  assert.deepEqual(Object.keys(value), ["__proto__"]);
  assert.equal(write(value), '{"__proto__":{"polluted":true}}');
});

test("wrong text is refused with its place", () => {
  const wrong = ["", "{", "[1,]", "{a:1}", "01", "1.", "+1", "nul", '"a', '"\u0001"', '"\\x"', "1 2", "[1 2]", '{"a" 1}', "NaN", "'a'", '"\\u12g4"'];
  for (const text of wrong) assert.throws(() => parse(text), JsonError, text);
  assert.throws(() => parse('{\n  "a": oops\n}'), (error: JsonError) => error.line === 2 && error.column === 8);
});

test("a hostile depth is refused, not a crash", () => {
  assert.throws(() => parse("[".repeat(100_000)), JsonError);
});

test("indented text reads back the same", () => {
  const text = '{"a":[1,{"b":18446744073709551615}],"c":{},"d":[]}';
  assert.equal(write(parse(write(parse(text), 2))), text);
  assert.equal(write(parse('{"a":1}'), 2), '{\n  "a": 1\n}');
});
