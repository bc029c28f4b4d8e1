// Which pieces of a lane are drawn: what is in view, with neighbours that are too small to tell
// apart drawn as one. Pure.
import type { Segment } from "./layout";
import type { Scale } from "./scale";

export interface Piece {
  left: number;
  width: number;
  segment: Segment;
  /** How many segments it stands for. */
  count: number;
}

/** Pieces of one lane at most, however many tries it had. */
const PIECES_MAX = 40;

/** The pieces of a lane within the view, in shares of its width. */
export function fit(segments: Segment[], scale: Scale, view: [number, number]): Piece[] {
  const [low, high] = view;
  const size = high - low;
  const smallest = segments.length > PIECES_MAX ? 1 / PIECES_MAX : 0.002;
  const pieces: Piece[] = [];
  for (const segment of segments) {
    const [a, b] = [(scale.place(segment.from) - low) / size, (scale.place(segment.to) - low) / size];
    if (b < 0 || a > 1) continue;
    const left = Math.max(0, a);
    const width = Math.min(1, b) - left;
    const before = pieces[pieces.length - 1];
    if (before && isSmall(before, smallest) && width < smallest && left - before.left < smallest) {
      before.width = Math.max(before.width, left + width - before.left);
      before.count++;
      if (weight(segment.kind) > weight(before.segment.kind)) before.segment = segment;
    } else {
      pieces.push({ left, width, segment, count: 1 });
    }
  }
  return pieces;
}

const isSmall = (piece: Piece, smallest: number): boolean => piece.width < smallest;
const weight = (kind: string): number => (kind === "failed" ? 2 : kind === "ok" ? 1 : 0);
