import { StateWord, type State } from "~/design";

const STATES: Record<string, State> = {
  guaranteed: "fresh",
  degraded: "ageing",
  refused: "failed",
};

/** Return the state that stands for a freshness status. */
export function stateOf(status: string): State {
  return STATES[status] ?? "unknown";
}

/** A freshness status: icon and word. */
export function Freshness({ status }: { status: string }) {
  return <StateWord state={stateOf(status)}>{status}</StateWord>;
}
