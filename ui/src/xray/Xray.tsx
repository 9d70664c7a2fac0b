import { useQuery } from "@tanstack/react-query";
import { useMemo, useRef, type ReactNode } from "react";

import { api, body } from "~/api/client";
import { useCan } from "~/api/me";

import { Ages } from "./Ages";
import { Inspector } from "./Inspector";
import { ItemList } from "./ItemList";
import { LineageGraph } from "./LineageGraph";
import { Losses } from "./Losses";
import { firstOf, placeKey, viewOf, type Cause, type Trace } from "./model";
import { Proof } from "./Proof";
import { SelectionContext, useSelectionState } from "./selection";
import { TokenBar } from "./TokenBar";
import { Violations } from "./Violations";
import css from "./Xray.module.css";

type Props = {
  /** The answer of `GET /context/{id}/explain`. */
  trace: Trace;
  /** The item that is selected at first, in the order of the text; the page may keep it in its URL. */
  initial?: number | undefined;
  onSelect?: (index: number) => void;
  /** What stands below the text: the answer. */
  children?: ReactNode;
};

/** The X-ray of one context: token bar, text, inspector, ages, proof and lineage, all in step. */
export function Xray({ trace, initial, onSelect, children }: Props) {
  const view = useMemo(() => viewOf(trace), [trace]);
  const selection = useSelectionState(view.items.length, initial ?? firstOf(view), onSelect);
  const causes = useCauses(trace);
  const inspector = useRef<HTMLDivElement>(null);
  const open = () => {
    inspector.current?.focus();
    inspector.current?.scrollIntoView({ block: "nearest" });
  };
  return (
    <SelectionContext value={selection}>
      <div className={css.xray}>
        <Violations trace={trace} />
        <Losses trace={trace} />
        <TokenBar view={view} open={open} />
        <div className={css.reading}>
          <ItemList view={view} open={open} />
          <Inspector
            ref={inspector}
            view={view}
            item={view.items[selection.active]}
            causes={causes}
          />
        </div>
        {children}
        <div className={css.evidence}>
          <Ages view={view} />
          <Proof contextId={trace.context_id} recordHash={trace.record_hash} />
        </div>
        {view.items.length > 0 && <LineageGraph view={view} causes={causes} />}
      </div>
    </SelectionContext>
  );
}

/** Return the events behind the values by their places, as far as history has them. */
function useCauses(trace: Trace): ReadonlyMap<string, Cause> | undefined {
  const isAllowed = useCan("GET /v1/context/{id}/causes");
  const { data } = useQuery({
    queryKey: ["causes", trace.context_id],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/v1/context/{id}/causes", {
          params: { path: { id: trace.context_id } },
          signal,
        }),
      ),
    enabled: isAllowed && trace.features.length > 0,
    staleTime: 60_000,
  });
  return useMemo(
    () => data && new Map(data.causes.map((cause) => [placeKey(cause), cause])),
    [data],
  );
}
