// The whole timeline in a strip, binned per pixel. Dragging over it chooses what is in view.
import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Timeline } from "../timeline/layout";
import type { Scale } from "../timeline/scale";
import { Canvas, type Draw } from "./canvas";

interface MinimapProps {
  timeline: Timeline;
  scale: Scale;
  view: [number, number];
  /** The rows in view: a signal, so that scrolling draws nothing again. */
  rows: Signal<[number, number]>;
  onView: (view: [number, number]) => void;
}

/** A drag shorter than this is a click, which shows everything again. */
const DRAG_MIN = 0.01;

const COLOUR: Record<string, string> = { ok: "bar-ok", running: "bar-running", failed: "bar-failed", backoff: "bar-backoff", delay: "bar-wait", wait: "bar-wait", signal: "bar-wait", queue: "bar-queue" };

export function Minimap({ timeline, scale, view, rows, onView }: MinimapProps): JSX.Element {
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const at = (event: PointerEvent): number => {
    const canvas = event.currentTarget as HTMLCanvasElement;
    const box = canvas.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const begin = (event: PointerEvent): void => {
    const canvas = event.currentTarget as HTMLCanvasElement;
    canvas.setPointerCapture(event.pointerId);
    const from = at(event);
    setDrag([from, from]);
    canvas.onpointerup = (up) => {
      canvas.onpointerup = null;
      const to = Math.min(1, Math.max(0, (up.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth));
      setDrag(null);
      onView(Math.abs(to - from) < DRAG_MIN ? [0, 1] : [Math.min(from, to), Math.max(from, to)]);
    };
  };
  const move = (event: PointerEvent): void => {
    if (drag) setDrag([drag[0], at(event)]);
  };
  const [low, high] = drag ? [Math.min(...drag), Math.max(...drag)] : view;
  const draw: Draw = (context, width, height, colour) => drawBins(context, timeline, scale, width, height, colour);
  return (
    <div class="minimap">
      <Canvas class="minimap-canvas" label={`Overview of ${timeline.steps} steps; drag to zoom`} draw={draw} data={[timeline, scale]} onPointerDown={begin} onPointerMove={move} />
      <RowsInView rows={rows} count={timeline.lanes.length} />
      <i class="minimap-veil" style={{ left: "0", width: `${low * 100}%` }} />
      <i class="minimap-veil" style={{ left: `${high * 100}%`, right: "0" }} />
    </div>
  );
}

function RowsInView({ rows, count }: { rows: Signal<[number, number]>; count: number }): JSX.Element | null {
  const [first, last] = rows.value;
  if (last - first >= count) return null;
  return <i class="minimap-rows" style={{ top: `${(first / count) * 100}%`, height: `${Math.max(4, (Math.min(last, count) - first) / count * 100)}%` }} />;
}

function drawBins(context: CanvasRenderingContext2D, timeline: Timeline, scale: Scale, width: number, height: number, colour: (name: string) => string): void {
  const lanes = timeline.lanes;
  const step = height / Math.max(lanes.length, 1);
  const thick = Math.max(1, Math.min(4, step * 0.8));
  // With more lanes than pixels, several fall on one line: failures are drawn last and win.
  for (const late of [false, true]) {
    for (let i = 0; i < lanes.length; i++) {
      for (const segment of lanes[i]?.segments ?? []) {
        if ((segment.kind === "failed") !== late) continue;
        const from = scale.place(segment.from) * width;
        const to = scale.place(segment.to) * width;
        context.fillStyle = colour(COLOUR[segment.kind] ?? "bar-ok");
        context.fillRect(from, i * step + (step - thick) / 2, Math.max(1, to - from), thick);
      }
    }
  }
}
