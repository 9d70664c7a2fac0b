/** Colours of the sources of context items: the same source has the same colour on every page. */

/** Kinds that are in almost every context have colours of their own. */
const OWN: Readonly<Record<string, number>> = {
  literal: 1,
  template: 2,
  other: 7,
  // Roles of messages.
  system: 1,
  user: 7,
  assistant: 5,
  tool: 4,
  tools: 6,
};
/** The colours of all others; the seventh is close to that of templates. */
const SHARED: readonly number[] = [3, 4, 5, 6, 8];

/** The key of a source: its kind alone, or its kind and the name it belongs to. */
export type Source = { kind: string; name?: string | null };

/** Return the CSS colour of a source: its own, or one from a stable hash of its name. */
export function sourceColor({ kind, name }: Source): string {
  const own = OWN[kind];
  if (own !== undefined) return `var(--source-${own})`;
  let hash = 2_166_136_261;
  for (const character of `${kind}/${name ?? ""}`) {
    hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 16_777_619);
  }
  return `var(--source-${SHARED[(hash >>> 0) % SHARED.length] ?? 3})`;
}
