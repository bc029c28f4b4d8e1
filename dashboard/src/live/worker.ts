// The shared worker: one stream for all tabs. A browser opens at most six connections to a server
// over HTTP/1.1, so a stream per tab would stop all of them at the seventh.
import { Stream, type Status } from "./stream";

export type FromTab = { kind: "open"; url: string } | { kind: "here" } | { kind: "bye" } | { kind: "watch"; runs: string[] };
export type ToTab = { kind: "topics"; topics: string[] } | { kind: "status"; status: Status };

interface Connect {
  ports: readonly MessagePort[];
}

/** A tab that was silent for this long is gone. Browsers let a hidden tab speak once a minute. */
const GONE_MS = 150_000;

interface Tab {
  seen: number;
  /** The runs that it shows. */
  runs: string[];
}

const tabs = new Map<MessagePort, Tab>();
let stream: Stream | null = null;
let status: Status = "connecting";

function tell(message: ToTab): void {
  for (const port of tabs.keys()) port.postMessage(message);
}

function heard(port: MessagePort, message: FromTab): void {
  if (message.kind === "bye") {
    tabs.delete(port);
  } else {
    const runs = message.kind === "watch" ? message.runs : tabs.get(port)?.runs ?? [];
    tabs.set(port, { seen: Date.now(), runs });
    if (message.kind === "open") begin(port, message.url);
  }
  stream?.watch([...tabs.values()].flatMap((tab) => tab.runs));
  endIfAlone();
}

function begin(port: MessagePort, url: string): void {
  stream ??= new Stream(url, {
    topics: (topics) => tell({ kind: "topics", topics }),
    status: (now) => {
      status = now;
      tell({ kind: "status", status });
    },
  });
  stream.open();
  port.postMessage({ kind: "status", status } satisfies ToTab);
}

function endIfAlone(): void {
  if (tabs.size > 0) return;
  stream?.close();
  stream = null;
}

setInterval(() => {
  for (const [port, { seen }] of tabs) if (Date.now() - seen > GONE_MS) tabs.delete(port);
  endIfAlone();
}, GONE_MS / 3);

(globalThis as unknown as { onconnect: (event: Connect) => void }).onconnect = (event) => {
  const port = event.ports[0];
  if (port) port.onmessage = (message: MessageEvent<FromTab>) => heard(port, message.data);
};
