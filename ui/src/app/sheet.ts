import { useSyncExternalStore } from "react";

/** A value that distant components share, such as whether a sheet is open. */
export function shared<T>(initial: T) {
  let value = initial;
  const listeners = new Set<() => void>();
  return {
    use: () =>
      useSyncExternalStore(
        (listener) => {
          listeners.add(listener);
          return () => listeners.delete(listener);
        },
        () => value,
      ),
    set: (next: T) => {
      value = next;
      for (const listener of listeners) listener();
    },
  };
}

/** Whether the rail is open on a phone. */
export const railSheet = shared(false);
/** Whether the list of shortcuts is open. */
export const shortcutsOpen = shared(false);
/** Whether the palette is open. */
export const paletteOpen = shared(false);
