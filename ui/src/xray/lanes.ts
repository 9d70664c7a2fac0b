/** What the items of a context are in its messages. Pure. */
import { parsedPart, type Lane, type Part } from "~/messages";

import type { Item } from "./model";

type Message = NonNullable<Item["message"]>;

/** An item in its message; places are those of the trace. */
export type Placed = {
  place: number;
  message: Message;
  lane: Lane;
  /** What the item is, if it is not text and can be read. */
  part: Part | null;
  /** The other half of a tool call, if it is in the record. */
  half: number | null;
  /** The items that were kept or dropped together with it. */
  together: readonly number[];
};

/** Return the places of all items in messages, or null if the context has none. */
export function placesOf(items: readonly Item[]): Placed[] | null {
  if (!items.some(({ message }) => message)) return null;
  const parts = items.map(partOf);
  const halves = halvesOf(parts);
  const groups = new Map<number, number[]>();
  items.forEach(({ message }, place) => {
    const group = message?.group;
    if (group !== null && group !== undefined)
      groups.set(group, [...(groups.get(group) ?? []), place]);
  });
  return items.map(({ message: found }, place) => {
    const message = found ?? PLAIN;
    const group = message.group === null ? [] : (groups.get(message.group) ?? []);
    return {
      place,
      message,
      lane: message.role ?? "tools",
      part: parts[place] ?? null,
      half: halves.get(place) ?? null,
      together: group.filter((each) => each !== place),
    };
  });
}

const PLAIN: Message = {
  kind: "text",
  role: "user",
  number: null,
  turn: null,
  group: null,
  cache: false,
  image: null,
};

function partOf({ message, content, emitted }: Item): Part | null {
  const text = emitted ?? content;
  if (!message || message.kind === "text" || text === null) return null;
  const part = parsedPart(text);
  return part?.type === "blob" && message.image !== null
    ? { ...part, content: message.image }
    : part;
}

/** The place of the result of each call, and of the call of each result. */
function halvesOf(parts: readonly (Part | null)[]): Map<number, number> {
  const calls = new Map<string, number>();
  const halves = new Map<number, number>();
  parts.forEach((part, place) => {
    if (part?.type === "tool_call") calls.set(part.id, place);
    if (part?.type !== "tool_call_response") return;
    const call = calls.get(part.id);
    if (call === undefined) return;
    halves.set(call, place);
    halves.set(place, call);
  });
  return halves;
}

/** Return what an item that is not text is called: a tool by its name, an image as such. */
export function partLabel(placed: Placed, places: readonly Placed[]): string {
  const { part, half } = placed;
  if (part?.type === "function" || part?.type === "tool_call") return part.name;
  const call = half === null ? null : places[half]?.part;
  return call?.type === "tool_call" ? call.name : kindWord(placed);
}

/** Return the word for what an item is. */
export const kindWord = ({ message }: Placed): string => message.kind.replace("_", " ");
