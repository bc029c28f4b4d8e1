// Where the dashboard begins.
import { render } from "preact";
import { App } from "./app";
import { start } from "./live/live";
import { loadMeta } from "./session";
import "./theme";

void loadMeta();
start();
const root = document.getElementById("app");
if (root) render(<App />, root);
