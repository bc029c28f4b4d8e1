// A canvas as sharp as the screen, drawn again when its size, its data or the theme changes.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { theme } from "../theme";

export type Draw = (context: CanvasRenderingContext2D, width: number, height: number, colour: (name: string) => string) => void;

interface CanvasProps {
  class: string;
  label: string;
  draw: Draw;
  /** Draws again when one of them changes. */
  data: unknown[];
  onPointerDown?: (event: PointerEvent) => void;
  onPointerMove?: (event: PointerEvent) => void;
  onPointerLeave?: (event: PointerEvent) => void;
}

export function Canvas({ class: css, label, draw, data, ...rest }: CanvasProps): JSX.Element {
  const ref = useRef<HTMLCanvasElement>(null);
  const chosen = theme.value;
  useEffect(() => {
    const canvas = ref.current;
    if (!canvas) return;
    const paint = (): void => paintOn(canvas, draw);
    const observer = new ResizeObserver(paint);
    observer.observe(canvas);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", paint);
    paint();
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", paint);
    };
  }, [...data, chosen]);
  return <canvas ref={ref} class={css} role="img" aria-label={label} {...rest} />;
}

function paintOn(canvas: HTMLCanvasElement, draw: Draw): void {
  const { clientWidth: width, clientHeight: height } = canvas;
  const sharp = devicePixelRatio || 1;
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  const context = canvas.getContext("2d");
  if (!context || !width) return;
  context.scale(sharp, sharp);
  draw(context, width, height, colours(canvas));
}

/** Resolves the colours of the style sheet, light or dark. */
function colours(canvas: HTMLCanvasElement): (name: string) => string {
  const probe = document.createElement("span");
  canvas.parentElement?.appendChild(probe);
  const found = new Map<string, string>();
  queueMicrotask(() => probe.remove());
  return (name) => {
    let colour = found.get(name);
    if (!colour) {
      probe.style.color = `var(--${name})`;
      colour = getComputedStyle(probe).color;
      found.set(name, colour);
    }
    return colour;
  };
}
