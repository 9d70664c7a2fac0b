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
  return givenOf(trace, "interaction_ref", trace.interaction_ref ?? {});
}

function givenOf(trace: Trace, part: string, values: Record<string, unknown>): Given[] {
  return Object.entries(values).map(([name, value]) => {
    const pointer = `/${part}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    if (trace.redacted.includes(pointer)) return { name, text: null, absence: "redacted" };
    if (trace.withheld.includes(pointer)) return { name, text: null, absence: "withheld" };
    return { name, text: cut(inline(value).replaceAll(/\s+/g, " ")), absence: null };
  });
}

function cut(text: string): string {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text;
}
