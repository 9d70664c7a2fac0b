import { useSyncExternalStore } from "react";

type State = { reachable: boolean; since: number };

let state: State = { reachable: true, since: Date.now() };
const listeners = new Set<() => void>();

/** Note whether the server answered; pages show their last data while it does not. */
export function reportReachable(reachable: boolean): void {
  if (reachable === state.reachable) return;
  state = { reachable, since: Date.now() };
  for (const listener of listeners) listener();
}

export function useReachability(): State {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => state,
  );
}
