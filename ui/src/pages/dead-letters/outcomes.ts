import { redriveOf } from "~/api/redrives";
import { count, plural } from "~/design/format";

import type { Letter, Settled, Verb } from "./queries";

// A redrive only publishes the event again: what has become of it by now is read separately.
const DONE = { redrive: "published again", discard: "discarded" } as const;

/** Return the new letter of each redriven one that has failed again, by the id it had before. */
export function returned(letters: readonly Letter[]): ReadonlyMap<string, string> {
  const found = letters.map(
    ({ id, event }) => [redriveOf(event.event_id ?? "")?.letter, id] as const,
  );
  return new Map(found.filter((each): each is [string, string] => each[0] !== undefined));
}

/** Return what happened to letters in a sentence: `2 letters discarded, 1 was gone.` */
export function summary(verb: Verb, settled: readonly Settled[], failed = 0): string {
  const gone = settled.filter(({ outcome }) => outcome === "gone").length;
  const done = settled.length - gone;
  if (settled.length === 0) return "Nothing was left to do: another call was faster.";
  const first = done === 0 ? "No letter" : plural(done, "letter");
  const rest = gone === 0 ? "" : `, ${gone} ${gone === 1 ? "was" : "were"} gone`;
  const again = failed === 0 ? "" : `, ${count(failed)} failed again`;
  return `${first} ${DONE[verb]}${again}${rest}.`;
}
