// A menu that opens below its button, and closes when one looks elsewhere.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface MenuProps {
  title: string;
  quiet?: boolean;
  /** Whether choosing something closes it. */
  closes?: boolean;
  children: ComponentChildren;
}

export function Menu({ title, quiet, closes, children }: MenuProps): JSX.Element {
  const ref = useRef<HTMLDetailsElement>(null);
  const close = (): void => {
    if (ref.current) ref.current.open = false;
  };
  useEffect(() => {
    const outside = (event: Event): void => {
      if (!ref.current?.contains(event.target as Node)) close();
    };
    const escape = (event: KeyboardEvent): void => {
      if (event.key !== "Escape" || !ref.current?.open) return;
      close();
      ref.current.querySelector("summary")?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", escape);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", escape);
    };
  }, []);
  return (
    <details class="menu" ref={ref}>
      <summary class={quiet ? "button quiet" : "button"}>{title}</summary>
      <div class="menu-in" onClick={closes ? close : undefined}>{children}</div>
    </details>
  );
}
