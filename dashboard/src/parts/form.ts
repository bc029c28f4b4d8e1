// What a form does when it is sent: once at a time, with what went wrong said in it.
import { useRef, useState } from "preact/hooks";

interface Sending {
  act: (event: Event) => void;
  /** Why it cannot be sent again yet, or `null`. */
  busy: string | null;
  error: string;
}

/** Guards the work of a form: a second press while it is under way does nothing. */
export function useSending(work: () => Promise<void>): Sending {
  const under = useRef(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const act = async (event: Event): Promise<void> => {
    event.preventDefault();
    // The state is seen with the next rendering only, and a second press may come before that.
    if (under.current) return;
    under.current = true;
    setBusy(true);
    setError("");
    try {
      await work();
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem));
    }
    under.current = false;
    setBusy(false);
  };
  return { act: (event) => void act(event), busy: busy ? "Under way" : null, error };
}
