// The stream of changes, kept open: reconnects with growing pauses, and says how it stands. Used
// by the shared worker, and by a tab where there is none.

export type Status = "connecting" | "live" | "down";

export interface StreamSink {
  topics(topics: string[]): void;
  status(status: Status): void;
}

/** Everything may have changed. */
export const ALL = "*";

/** As many runs as the server watches for one stream. */
const RUNS_MAX = 8;

/** Runs beyond these are looked at this long after anything changed; the server says something as often. */
export const BEYOND_MS = 5_000;

const PAUSE_MIN_MS = 500;
const PAUSE_MAX_MS = 10_000;

/** A server says something every five seconds; silence for four of them means that the connection is dead. */
export const SILENCE_MAX_MS = 20_000;

const topicOf = (run: string): string => `run:${run}`;

export class Stream {
  private source: EventSource | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private look: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private wasLive = false;
  private moving = false;
  private runs: string[] = [];
  /** Those that the server does not watch for us, since there are too many. */
  private beyond: string[] = [];

  constructor(private readonly url: string, private readonly sink: StreamSink) {}

  /** Which runs are told of record by record; the server takes only so many of them. */
  watch(runs: string[]): void {
    const all = [...new Set(runs)].sort();
    const next = all.slice(0, RUNS_MAX);
    this.beyond = all.slice(RUNS_MAX);
    if (next.join() === this.runs.join()) return;
    this.runs = next;
    if (!this.source) return;
    // Another address needs another connection; that is no outage.
    this.moving = true;
    this.close();
    this.open();
  }

  open(): void {
    if (this.source || this.timer) return;
    if (!this.moving) this.sink.status(this.failures ? "down" : "connecting");
    const source = new EventSource(this.url + this.runs.map((run, i) => `${i ? "&" : "?"}run=${encodeURIComponent(run)}`).join(""));
    this.source = source;
    source.onopen = () => this.opened();
    source.onerror = () => this.failed();
    source.addEventListener("change", (event) => this.changed((event as MessageEvent<string>).data));
    source.addEventListener("reset", () => this.reset());
    this.heard();
  }

  close(): void {
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    clearTimeout(this.look);
    this.timer = this.look = undefined;
    this.source?.close();
    this.source = null;
  }

  private opened(): void {
    this.failures = 0;
    this.heard();
    this.sink.status("live");
    // What changed while there was no stream is unknown.
    if (this.wasLive) this.sink.topics(this.moving ? [...this.runs, ...this.beyond].map(topicOf) : [ALL]);
    this.wasLive = true;
    this.moving = false;
  }

  private failed(): void {
    this.moving = false;
    this.close();
    this.failures++;
    this.sink.status("down");
    const pause = Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** Math.min(this.failures - 1, 6));
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.open();
    }, pause * (0.75 + Math.random() / 2));
  }

  private changed(data: string): void {
    this.heard();
    this.lookBeyond();
    try {
      const { topics } = JSON.parse(data) as { topics: string[] };
      this.sink.topics(topics);
    } catch {
      this.sink.topics([ALL]);
    }
  }

  /** A record of a run that is not watched is told by nobody, so each word of the server asks for a look. */
  private lookBeyond(): void {
    if (this.beyond.length === 0) return;
    this.look ??= setTimeout(() => {
      this.look = undefined;
      this.sink.topics(this.beyond.map(topicOf));
    }, BEYOND_MS);
  }

  private reset(): void {
    this.heard();
    this.sink.topics([ALL]);
  }

  private heard(): void {
    clearTimeout(this.silence);
    // A machine that slept, or a network that drops without a word, closes nothing: this end has to.
    this.silence = setTimeout(() => this.failed(), SILENCE_MAX_MS);
  }
}
