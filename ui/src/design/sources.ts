/** Colours of the sources of context items: the same source has the same colour on every page. */
const COLORS = 8;

/** Kinds that are in almost every context have colours of their own. */
const OWN: readonly string[] = ["literal", "template"];

/** The key of a source: its kind alone, or its kind and the name it belongs to. */
export type Source = { kind: string; name?: string | null };

/** Return the CSS colour of a source: its own, or one from a stable hash of its name. */
export function sourceColor({ kind, name }: Source): string {
  const own = OWN.indexOf(kind);
  if (own >= 0) return `var(--source-${own + 1})`;
  let hash = 2_166_136_261;
  for (const character of `${kind}/${name ?? ""}`) {
    hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 16_777_619);
  }
  return `var(--source-${((hash >>> 0) % (COLORS - OWN.length)) + OWN.length + 1})`;
}
