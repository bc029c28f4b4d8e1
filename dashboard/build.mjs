// Builds the dashboard into the server's crate. The output has fixed names and is the same, byte
// for byte, wherever and whenever it is built.
import { build } from "esbuild";
import { copyFile, mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../crates/onward-server/dist");

const shared = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  legalComments: "none",
  charset: "utf8",
  logLevel: "warning",
};

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
await Promise.all([
  build({
    ...shared,
    entryPoints: ["src/main.tsx"],
    outfile: join(out, "app.js"),
    format: "esm",
    jsx: "automatic",
    jsxImportSource: "preact",
  }),
  build({ ...shared, entryPoints: ["src/live/worker.ts"], outfile: join(out, "live.js"), format: "iife" }),
  build({ ...shared, entryPoints: ["src/style/app.css"], outfile: join(out, "app.css") }),
  copyFile(join(here, "src/index.html"), join(out, "index.html")),
  copyFile(join(here, "src/icons.svg"), join(out, "icons.svg")),
]);
