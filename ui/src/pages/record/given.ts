/** What a context was called with, in words. Pure. */
import { inline } from "~/design/format";
import type { Trace } from "~/xray";

const LONGEST = 120;

export type Given = {
  name: string;
  /** The value on one line, cut if it is long; null if this copy of the record lacks it. */
  text: string | null;
  /** Why there is no text. */
  absence: "redacted" | "withheld" | null;
};

/** Return the arguments of a context. */
export function inputsOf(trace: Trace): Given[] {
  return givenOf(trace, "inputs", trace.inputs);
}

/** Return the interaction that a context was made for: a ticket and a turn, for example. */
export function interactionOf(trace: Trace): Given[] {
  const name = "interaction_ref";
  // A copy lacks it as a whole; earlier records have a pointer for each key.
  const absence = absenceOf(trace, `/${name}`);
  if (absence !== null) return [{ name, text: null, absence }];
  return givenOf(trace, name, trace.interaction_ref ?? {});
}

function givenOf(trace: Trace, part: string, values: Record<string, unknown>): Given[] {
  return Object.entries(values).map(([name, value]) => {
    const absence = absenceOf(
      trace,
      `/${part}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`,
    );
    const text = absence === null ? cut(inline(value).replaceAll(/\s+/g, " ")) : null;
    return { name, text, absence };
  });
}

function absenceOf(trace: Trace, pointer: string): Given["absence"] {
  if (trace.redacted.includes(pointer)) return "redacted";
  return trace.withheld.includes(pointer) ? "withheld" : null;
}

function cut(text: string): string {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text;
}
