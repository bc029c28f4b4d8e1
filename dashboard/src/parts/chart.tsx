// A small area chart: what was started, what ended and what failed, per minute.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { SeriesPoint } from "../api/types";
import { count } from "../format/number";
import { local } from "../format/time";
import { Canvas, type Draw } from "./canvas";

const MINUTE_MS = 60_000;

/** A point for each of the last sixty minutes; the server leaves out those in which nothing happened. */
export function lastHour(points: SeriesPoint[], now: number): SeriesPoint[] {
  const found = new Map(points.map((point) => [Math.floor(point.at / MINUTE_MS), point]));
  const last = Math.floor(now / MINUTE_MS);
  return Array.from({ length: 60 }, (_, i) => found.get(last - 59 + i) ?? { at: (last - 59 + i) * MINUTE_MS, started: 0, ended: 0, failed: 0 });
}

const FOOT = 18;
const HEAD = 8;

export function AreaChart({ points }: { points: SeriesPoint[] }): JSX.Element {
  const [at, setAt] = useState<number | null>(null);
  const top = Math.max(4, ...points.map((point) => Math.max(point.started, point.ended)));
  const draw: Draw = (context, width, height, colour) => {
    const room = height - FOOT - HEAD;
    const x = (i: number): number => (points.length > 1 ? (i / (points.length - 1)) * width : 0);
    const y = (value: number): number => HEAD + room - (value / top) * room;
    grid(context, width, top, y, colour);
    area(context, points.map((point) => point.ended), x, y, colour("chart-ended"), colour("chart-ended-fill"), HEAD + room);
    area(context, points.map((point) => point.failed), x, y, colour("chart-failed"), colour("chart-failed-fill"), HEAD + room);
    line(context, points.map((point) => point.started), x, y, colour("accent"));
    times(context, points, x, height, colour("muted"));
    if (at !== null) {
      context.fillStyle = colour("muted");
      context.fillRect(x(at), HEAD, 1, room);
    }
  };
  const pointed = (event: PointerEvent): void => {
    const box = (event.currentTarget as HTMLCanvasElement).getBoundingClientRect();
    setAt(Math.round(((event.clientX - box.left) / box.width) * (points.length - 1)));
  };
  const sum = (name: "started" | "ended" | "failed"): number => points.reduce((all, point) => all + point[name], 0);
  const point = at === null ? undefined : points[at];
  const value = (name: "started" | "ended" | "failed"): number => (point ? point[name] : sum(name));
  return (
    <div class="chart">
      <div class="legend">
        <span><i class="swatch line-started" />started <b class="num">{count(value("started"))}</b></span>
        <span><i class="swatch chart-ended" />completed or cancelled <b class="num">{count(value("ended") - value("failed"))}</b></span>
        <span><i class="swatch bar-failed" />failed <b class="num">{count(value("failed"))}</b></span>
        <span class="faint num">{point ? `the minute from ${local(point.at)}` : "the last hour"}</span>
      </div>
      <Canvas class="chart-canvas" label={`Per minute over the last hour: ${sum("started")} started, ${sum("ended")} ended, ${sum("failed")} failed`} draw={draw} data={[points, at]} onPointerMove={pointed} onPointerLeave={() => setAt(null)} />
    </div>
  );
}

type Along = (value: number) => number;

function grid(context: CanvasRenderingContext2D, width: number, top: number, y: Along, colour: (name: string) => string): void {
  context.font = "11px system-ui, sans-serif";
  for (const share of [0, 0.5, 1]) {
    const value = Math.round(top * share);
    context.fillStyle = colour("line");
    context.fillRect(0, Math.round(y(value)), width, 1);
    context.fillStyle = colour("muted");
    if (share) context.fillText(count(value), 2, y(value) + 11);
  }
}

function trace(context: CanvasRenderingContext2D, values: number[], x: Along, y: Along): void {
  context.beginPath();
  values.forEach((value, i) => (i ? context.lineTo(x(i), y(value)) : context.moveTo(x(i), y(value))));
}

function line(context: CanvasRenderingContext2D, values: number[], x: Along, y: Along, stroke: string): void {
  trace(context, values, x, y);
  context.strokeStyle = stroke;
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.stroke();
}

function area(context: CanvasRenderingContext2D, values: number[], x: Along, y: Along, stroke: string, fill: string, floor: number): void {
  trace(context, values, x, y);
  context.lineTo(x(values.length - 1), floor);
  context.lineTo(x(0), floor);
  context.fillStyle = fill;
  context.fill();
  line(context, values, x, y, stroke);
}

function times(context: CanvasRenderingContext2D, points: SeriesPoint[], x: Along, height: number, fill: string): void {
  context.fillStyle = fill;
  context.font = "11px system-ui, sans-serif";
  const step = Math.max(1, Math.floor(points.length / 6));
  for (let i = step; i < points.length - step / 2; i += step) {
    const text = local((points[i] as SeriesPoint).at).slice(11, 16);
    context.fillText(text, x(i) - context.measureText(text).width / 2, height - 4);
  }
}
