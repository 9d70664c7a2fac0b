import { plural } from "~/design/format";

import type { Settled, Verb } from "./queries";

// A redrive only publishes the event again: whether it succeeds is not known yet.
const DONE = { redrive: "queued for the worker", discard: "discarded" } as const;

/** Return what happened to letters in a sentence: `2 letters discarded, 1 was gone.` */
export function summary(verb: Verb, settled: readonly Settled[]): string {
  const gone = settled.filter(({ outcome }) => outcome === "gone").length;
  const done = settled.length - gone;
  if (settled.length === 0) return "Nothing was left to do: another call was faster.";
  const first = done === 0 ? "No letter" : plural(done, "letter");
  const rest = gone === 0 ? "" : `, ${gone} ${gone === 1 ? "was" : "were"} gone`;
  return `${first} ${DONE[verb]}${rest}.`;
}
