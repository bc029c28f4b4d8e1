// Asks before something is changed, shows the same on the command line and with curl, and does it.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { Role } from "../api/types";
import { Action, Button } from "./button";
import { CopyButton } from "./copy";
import { Dialog } from "./dialog";
import { useSending } from "./form";

export interface Question {
  title: string;
  text: ComponentChildren;
  /** The words on the button. */
  act: string;
  danger?: boolean;
  cli?: string;
  curl?: string;
  /** Whether a reason may be given, which is kept in the audit. */
  reason?: boolean;
  /** A word that must be typed first, for what cannot be taken back. */
  typed?: string;
  /** The role that it needs; "operate" where nothing else is said. */
  need?: Role;
  onAct: (reason: string) => Promise<void>;
}

const asked = signal<Question | null>(null);

/** Opens the dialog. */
export function ask(question: Question): void {
  asked.value = question;
}

export function AskHost(): JSX.Element | null {
  return asked.value ? <Ask key={asked.value.title} question={asked.value} onClose={() => (asked.value = null)} /> : null;
}

function Ask({ question, onClose }: { question: Question; onClose: () => void }): JSX.Element {
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const { act, busy, error } = useSending(async () => {
    await question.onAct(reason);
    onClose();
  });
  const waits = question.typed && typed !== question.typed ? `Type ${question.typed} first` : null;
  return (
    <Dialog title={question.title} onClose={onClose}>
      <form onSubmit={act}>
        <div class="dialog-body">
          <div>{question.text}</div>
          {question.typed ? <label class="field">Type <code>{question.typed}</code> to go on<input value={typed} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} /></label> : null}
          {question.reason ? <label class="field">Reason <span class="faint">(kept in the audit; may be left out)</span><input value={reason} maxLength={500} onInput={(event) => setReason(event.currentTarget.value)} /></label> : null}
          {error ? <p class="problem" role="alert">{error}</p> : null}
          <Same cli={question.cli} curl={question.curl} />
        </div>
        <footer class="dialog-foot">
          <Button onClick={onClose}>Keep as it is</Button>
          <Action need={question.need} type="submit" kind={question.danger ? "danger" : "primary"} disabled={busy ?? waits}>{question.act}</Action>
        </footer>
      </form>
    </Dialog>
  );
}

/** The same action elsewhere. */
export function Same({ cli, curl }: { cli: string | undefined; curl: string | undefined }): JSX.Element | null {
  if (!cli && !curl) return null;
  return (
    <div class="same">
      <span class="faint">The same from a shell</span>
      {cli ? <CopyButton text={cli} what="the command" words="Copy as CLI" /> : null}
      {curl ? <CopyButton text={curl} what="the curl command" words="Copy as curl" /> : null}
      {cli ? <pre tabIndex={0} aria-label="The command">{cli}</pre> : null}
    </div>
  );
}
