import { useSyncExternalStore } from "react";

import { Tooltip } from "@mantine/core";

import { ago, exact, isRecent } from "./format";
import { localTime } from "./preferences";
import css from "./text.module.css";

let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

// A function of the module: one made by each render would subscribe again after every one.
function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (timer === undefined) now = Date.now();
  timer ??= setInterval(() => {
    now = Date.now();
    for (const each of listeners) each();
  }, 1_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** Return the current time, renewed every second by one timer for the whole page. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}

type Props = { at: string | number | null | undefined; show?: "relative" | "exact" | "recent" };

/**
 * A time: how long ago it is, and the exact time on hover, or the reverse. `recent` shows how long ago
 * only in the last hour, for lists: rows of `4 h ago` do not tell which one is sought.
 */
export function Time({ at, show = "relative" }: Props) {
  const current = useNow();
  const isLocal = localTime.use();
  if (at === null || at === undefined) return <span className={css.dim}>—</span>;
  const time = typeof at === "number" ? at : Date.parse(at);
  const relative = ago(time, current);
  const whole = exact(time, { local: isLocal, now: current });
  const isRelative = show === "relative" || (show === "recent" && isRecent(time, current));
  // The columns of lists are narrow, and the bar at the top names the zone.
  const brief = show === "recent" ? whole.replace(/ UTC$/, "") : whole;
  const [shown, hidden] = isRelative ? [relative, whole] : [brief, relative];
  return (
    <Tooltip label={hidden} openDelay={200}>
      <time dateTime={new Date(time).toISOString()} className={css.number}>
        {shown}
      </time>
    </Tooltip>
  );
}
