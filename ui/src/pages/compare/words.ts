/** Differences between texts, by lines and inside of lines by words. Pure. */

export type Part = { text: string; isChanged: boolean };
export type Line = {
  /** How the line changed; `changed` has both sides. */
  kind: "same" | "added" | "removed" | "changed";
  before: readonly Part[] | null;
  after: readonly Part[] | null;
};

/** Beyond this number of comparisons a difference is not refined, so that no text hangs the page. */
const MOST = 4_000_000;

/** Pair the lines of two texts, and mark the words that differ in changed ones. */
export function lineDiff(before: string, after: string): Line[] {
  const lines: Line[] = [];
  let removed: string[] = [];
  let added: string[] = [];
  const flush = () => {
    const shared = Math.min(removed.length, added.length);
    for (let place = 0; place < Math.max(removed.length, added.length); place++) {
      const [one, two] = [removed[place], added[place]];
      if (place < shared && one !== undefined && two !== undefined) {
        lines.push({ kind: "changed", ...wordDiff(one, two) });
      } else if (one !== undefined) {
        lines.push({ kind: "removed", before: [{ text: one, isChanged: true }], after: null });
      } else if (two !== undefined) {
        lines.push({ kind: "added", before: null, after: [{ text: two, isChanged: true }] });
      }
    }
    [removed, added] = [[], []];
  };
  for (const [one, two] of pairs(before.split("\n"), after.split("\n"))) {
    if (one !== null && two !== null) {
      flush();
      const same = [{ text: one, isChanged: false }];
      lines.push({ kind: "same", before: same, after: same });
    } else if (one !== null) removed.push(one);
    else if (two !== null) added.push(two);
  }
  flush();
  return lines;
}

/** Mark the words in which two texts differ. */
export function wordDiff(before: string, after: string): { before: Part[]; after: Part[] } {
  const sides = { before: [] as Part[], after: [] as Part[] };
  for (const [one, two] of pairs(words(before), words(after))) {
    const isChanged = one === null || two === null;
    if (one !== null) push(sides.before, one, isChanged);
    if (two !== null) push(sides.after, two, isChanged);
  }
  return sides;
}

function push(parts: Part[], text: string, isChanged: boolean) {
  const last = parts.at(-1);
  if (last?.isChanged === isChanged) last.text += text;
  else parts.push({ text, isChanged });
}

/** Split a text into words, spaces and signs; joined, they are the text. */
export function words(text: string): string[] {
  return text.match(/[\p{L}\p{N}\p{M}_]+|\s+|./gsu) ?? [];
}

/** Pair equal elements of two lists by a longest common subsequence; the others stand alone. */
export function pairs(
  before: readonly string[],
  after: readonly string[],
): [string | null, string | null][] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let [endA, endB] = [before.length, after.length];
  while (endA > start && endB > start && before[endA - 1] === after[endB - 1]) {
    endA--;
    endB--;
  }
  const middle = common(before.slice(start, endA), after.slice(start, endB));
  const whole = (text: string): [string, string] => [text, text];
  return [...before.slice(0, start).map(whole), ...middle, ...before.slice(endA).map(whole)];
}

type Pair = [string | null, string | null];

function common(a: readonly string[], b: readonly string[]): Pair[] {
  const removed = (text: string): Pair => [text, null];
  const added = (text: string): Pair => [null, text];
  if (a.length * b.length > MOST) return [...a.map(removed), ...b.map(added)];
  const longest = lengths(a, b);
  const found: Pair[] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    const [one = "", two = ""] = [a[i], b[j]];
    const at = i * (b.length + 1) + j;
    if (one === two) {
      found.push([one, two]);
      i++;
      j++;
    } else if ((longest[at + b.length + 1] ?? 0) >= (longest[at + 1] ?? 0)) {
      found.push(removed(one));
      i++;
    } else {
      found.push(added(two));
      j++;
    }
  }
  return [...found, ...a.slice(i).map(removed), ...b.slice(j).map(added)];
}

/** Return the length of the longest common subsequence of the rests after each pair of places. */
function lengths(a: readonly string[], b: readonly string[]): Uint32Array {
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => longest[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] =
        a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  return longest;
}
