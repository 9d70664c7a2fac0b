import { useSyncExternalStore } from "react";

/** The API key lives in this tab only, and is gone when the tab is closed. */
const STORAGE = "headwater.key";

const listeners = new Set<() => void>();

export function currentKey(): string | null {
  return sessionStorage.getItem(STORAGE);
}

export function setKey(key: string | null): void {
  if (key === null) sessionStorage.removeItem(STORAGE);
  else sessionStorage.setItem(STORAGE, key);
  for (const listener of listeners) listener();
}

export function useKey(): string | null {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, currentKey);
}
