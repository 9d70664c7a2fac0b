/** Colours of the sources of context items: the same source has the same colour on every page. */
const COLORS = 8;

/** The key of a source: its kind alone, or its kind and the name it belongs to. */
export type Source = { kind: string; name?: string | null };

/** Return the CSS colour of a source, from a stable hash of its name. */
export function sourceColor({ kind, name }: Source): string {
  let hash = 2_166_136_261;
  for (const character of `${kind}/${name ?? ""}`) {
    hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 16_777_619);
  }
  return `var(--source-${((hash >>> 0) % COLORS) + 1})`;
}
