// Runs the unit tests: each is bundled to plain JavaScript, then handed to node's own test runner.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const tests = readdirSync(join(here, "unit")).filter((name) => name.endsWith(".test.ts"));
const out = mkdtempSync(join(tmpdir(), "onward-unit-"));
try {
  await build({
    absWorkingDir: here,
    entryPoints: tests.map((name) => join("unit", name)),
    bundle: true,
    platform: "node",
    format: "esm",
    outdir: out,
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
  });
  const built = tests.map((name) => join(out, name.replace(/\.ts$/, ".mjs")));
  const { status } = spawnSync(process.execPath, ["--test", ...built], { stdio: "inherit" });
  process.exitCode = status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
