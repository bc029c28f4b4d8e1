// Asks for a token where the server wants one.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { logIn } from "../session";
import { Button } from "../parts/button";
import { Icon } from "../parts/icon";

export function LoginPage(): JSX.Element {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const act = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await logIn(token.trim());
    } catch (problem) {
      setError(problem instanceof ApiError && problem.status === 401 ? "The server does not know this token." : (problem as Error).message);
    }
    setBusy(false);
  };
  return (
    <main class="login" id="main" tabIndex={-1}>
      <form class="panel" onSubmit={(event) => void act(event)}>
        <h1><Icon name="logo" />Onward</h1>
        <p>This server asks for a token. It is kept in a cookie that scripts cannot read, until you log out.</p>
        <label class="field">Token<input type="password" autocomplete="current-password" required autofocus value={token} onInput={(event) => setToken(event.currentTarget.value)} /></label>
        {error ? <p class="problem" role="alert">{error}</p> : null}
        <Button type="submit" kind="primary" disabled={busy ? "Under way" : null}>Log in</Button>
        <p class="faint small">An administrator makes one with <code>onward tokens create NAME --role read --file FILE</code>.</p>
      </form>
    </main>
  );
}
