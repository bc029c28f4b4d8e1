// A list that draws only what is in view: rows of one height in a box that scrolls.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface VirtualProps {
  label: string;
  count: number;
  rowHeight: number;
  row: (index: number) => ComponentChildren;
  /** Told which rows are in view. */
  onView?: (first: number, last: number) => void;
  /** A row to bring into view when it changes. */
  show?: number | null;
}

/** Rows drawn above and below the view. */
const OVERSCAN = 6;

export function VirtualList({ label, count, rowHeight, row, onView, show }: VirtualProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(480);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    setHeight(element.clientHeight);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / rowHeight) - OVERSCAN);
  const last = Math.min(count, Math.ceil((top + height) / rowHeight) + OVERSCAN);
  useEffect(() => onView?.(Math.floor(top / rowHeight), Math.ceil((top + height) / rowHeight)), [top, height, count]);
  useEffect(() => {
    if (show === null || show === undefined || !box.current) return;
    const [from, to] = [show * rowHeight, (show + 1) * rowHeight];
    if (from < box.current.scrollTop) box.current.scrollTop = from;
    else if (to > box.current.scrollTop + height) box.current.scrollTop = to - height;
  }, [show]);
  const rows: JSX.Element[] = [];
  for (let i = first; i < last; i++) {
    rows.push(
      <div key={i} role="listitem" aria-setsize={count} aria-posinset={i + 1} class="virtual-row" style={{ top: `${i * rowHeight}px`, height: `${rowHeight}px` }}>
        {row(i)}
      </div>,
    );
  }
  return (
    <div ref={box} class="virtual" style={{ height: `${count * rowHeight}px` }} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
      <div role="list" aria-label={label} class="virtual-in" style={{ height: `${count * rowHeight}px` }}>{rows}</div>
    </div>
  );
}
