/** Keys for signatures: given once for all records, and forgotten with the page. */
import { useSyncExternalStore } from "react";

let keys = "";
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useKeys = (): string => useSyncExternalStore(subscribe, () => keys);

export function setKeys(given: string): void {
  keys = given;
  for (const listener of listeners) listener();
}
