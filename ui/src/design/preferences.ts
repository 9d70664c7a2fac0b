import { useSyncExternalStore } from "react";

/** A choice of the reader that outlives the page, such as the time zone. */
function preference(name: string, initial: boolean) {
  const storage = `headwater.${name}`;
  const listeners = new Set<() => void>();
  const read = () => {
    const stored = localStorage.getItem(storage);
    return stored === null ? initial : stored === "true";
  };
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    window.addEventListener("storage", listener);
    return () => {
      listeners.delete(listener);
      window.removeEventListener("storage", listener);
    };
  };
  const set = (value: boolean) => {
    localStorage.setItem(storage, String(value));
    for (const listener of listeners) listener();
  };
  return { use: () => useSyncExternalStore(subscribe, read), set };
}

/** Whether times are shown in the reader's zone and not in UTC. */
export const localTime = preference("local-time", false);
