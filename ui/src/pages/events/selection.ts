import { useState } from "react";

import { usePastEvents } from "./past";
import type { Shown } from "./tail";

export type Selection = {
  selected: Shown | undefined;
  /** The id that the URL names, if no event has it. */
  unknown: string | null;
  select: (event: Shown | null) => void;
};

/** Return the event that the URL names: one of the list, or one that the server still knows. */
export function useSelection(
  events: readonly Shown[],
  search: URLSearchParams,
  set: (name: string, value: string | null, replace?: boolean) => void,
): Selection {
  const id = search.get("event");
  const [chosen, setChosen] = useState<Shown | null>(null);
  const isChosen = chosen !== null && chosen.event.event_id === id;
  const listed = isChosen ? chosen : events.find(({ event }) => event.event_id === id);
  const asked = usePastEvents({ event_id: id ?? "" }, id !== null && listed === undefined);
  const selected = id === null ? undefined : (listed ?? asked.data?.[0]);
  return {
    selected,
    unknown: selected === undefined && asked.isSuccess ? id : null,
    select: (event) => {
      setChosen(event);
      set("event", event?.event.event_id ?? null, true);
    },
  };
}
