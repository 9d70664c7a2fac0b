import { useSyncExternalStore } from "react";

type State = { reachable: boolean; since: number };

let state: State = { reachable: true, since: Date.now() };
const listeners = new Set<() => void>();

/** Note whether the server answered, and return whether that is news. */
export function reportReachable(reachable: boolean): boolean {
  if (reachable === state.reachable) return false;
  state = { reachable, since: Date.now() };
  for (const listener of listeners) listener();
  return true;
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
