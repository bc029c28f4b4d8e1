// A dialog: the browser's own, so that focus and Escape do what they should.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Icon } from "./icon";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

const FIRST = ".dialog-in > .search-field input, .dialog-body input, .dialog-body textarea, .dialog-foot button";

export function Dialog({ title, onClose, children, wide }: DialogProps): JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement as HTMLElement | null;
    dialog?.showModal();
    // Not the button that closes it, which comes first.
    dialog?.querySelector<HTMLElement>(FIRST)?.focus();
    return () => {
      dialog?.close();
      before?.focus?.();
    };
  }, []);
  return (
    <dialog ref={ref} class={wide ? "dialog wide" : "dialog"} aria-label={title} onCancel={(event) => { event.preventDefault(); onClose(); }} onClick={(event) => event.target === ref.current && onClose()}>
      <div class="dialog-in">
        <header class="dialog-head">
          <h2>{title}</h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={onClose}><Icon name="close" /></button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
