import { useMemo, useState } from "react";
import { useLocation } from "wouter";

import { Button } from "~/design";

import css from "./RecordsPage.module.css";

/** A context that was ticked for a comparison. */
type Tick = { context_id: string; created_at: string };

export type Ticks = {
  /** At most two, the earlier context first. */
  ids: readonly string[];
  toggle: (row: Tick) => void;
  clear: () => void;
};

/** Keep the ticks of a list: a third one replaces the older of the two. */
export function useTicks(): Ticks {
  const [ticked, setTicked] = useState<readonly Tick[]>([]);
  return useMemo(
    () => ({
      ids: [...ticked]
        .sort((a, b) => Date.parse(a.created_at) - Date.parse(b.created_at))
        .map(({ context_id }) => context_id),
      toggle: (row) =>
        setTicked((known) =>
          known.some(({ context_id }) => context_id === row.context_id)
            ? known.filter(({ context_id }) => context_id !== row.context_id)
            : [...known.slice(-1), row],
        ),
      clear: () => setTicked([]),
    }),
    [ticked],
  );
}

/** What was ticked, and the way to the comparison. */
export function Ticked({ ticks }: { ticks: Ticks }) {
  const [, navigate] = useLocation();
  const [a, b] = ticks.ids;
  if (a === undefined) return null;
  return (
    <div className={css.ticked} role="status">
      <span>{b === undefined ? "One context ticked. Tick another." : "Two contexts ticked."}</span>
      <Button look="quiet" onClick={ticks.clear}>
        Clear
      </Button>
      <Button
        look="primary"
        disabled={b === undefined}
        onClick={() => navigate(`/compare?a=${a}&b=${b ?? ""}`)}
      >
        Compare
      </Button>
    </div>
  );
}
