// Keeps what went wrong in one part of the dashboard from taking the rest down.
import { Component, type ComponentChildren, type JSX } from "preact";
import { forgetAll } from "../api/resource";
import { BASE } from "../base";
import { Button } from "./button";
import { Icon } from "./icon";

interface GuardState {
  error: unknown;
}

/** Shows its children, or, where they cannot be drawn, a sentence about that and ways on. */
export class Guard extends Component<{ children: ComponentChildren }, GuardState> {
  override state: GuardState = { error: undefined };

  override componentDidCatch(error: unknown): void {
    console.error(error);
    // An answer that cannot be drawn is asked for anew, not drawn again from memory.
    forgetAll();
    this.setState({ error: error ?? new Error("unknown") });
  }

  override render(): ComponentChildren {
    return this.state.error === undefined ? this.props.children : <Broken error={this.state.error} again={() => this.setState({ error: undefined })} />;
  }
}

function Broken({ error, again }: { error: unknown; again: () => void }): JSX.Element {
  return (
    <div class="empty" role="alert">
      <Icon name="warning" />
      <h2>This page cannot be shown</h2>
      <p>Something in what the server answered is not what the page expects. Runs and workers are not touched by that. <code>{error instanceof Error ? error.message : String(error)}</code></p>
      <div class="row"><Button icon="retry" onClick={again}>Try again</Button><a class="button" href={BASE}>To the overview</a></div>
    </div>
  );
}
