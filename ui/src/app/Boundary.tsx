import { Component, type ReactNode } from "react";

import { isReachable } from "~/api/client";
import { ErrorPanel } from "~/design";

type State = { error: unknown };

/** Shows what failed in a page, and leaves the rest of the UI usable. */
export class Boundary extends Component<{ children: ReactNode }, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(error: unknown): State {
    return { error };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    // A page of an older release cannot load its parts after an upgrade: a reload gets the new one.
    return <ErrorPanel error={this.state.error} retry={() => void reload()} />;
  }
}

/** Load the page again, unless no server would answer: the browser would lose what is shown. */
async function reload(): Promise<void> {
  if (await isReachable()) location.reload();
}
