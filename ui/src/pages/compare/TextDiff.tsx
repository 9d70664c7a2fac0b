import { useMemo } from "react";

import { plural } from "~/design/format";

import css from "./ComparePage.module.css";
import { lineDiff, type Line, type Part } from "./words";

const CONTEXT = 3;

/** Two texts side by side, line by line; long equal parts are folded. */
export function TextDiff({ before, after }: { before: string | null; after: string | null }) {
  const lines = useMemo(
    () => (before === null || after === null ? [] : folded(lineDiff(before, after))),
    [before, after],
  );
  if (before === null || after === null) {
    return (
      <p className={css.none}>A text is withheld or redacted, so the texts cannot be compared.</p>
    );
  }
  if (before === after && before === "") return <p className={css.none}>Both texts are empty.</p>;
  return (
    <table className={css.text} aria-label="Text of both contexts">
      <tbody>
        {lines.map((line, place) =>
          typeof line === "number" ? (
            <tr key={place}>
              <td colSpan={2} className={css.gap}>
                {plural(line, "equal line")}
              </td>
            </tr>
          ) : (
            <tr key={place}>
              <Cell parts={line.before} kind={line.kind} side="before" />
              <Cell parts={line.after} kind={line.kind} side="after" />
            </tr>
          ),
        )}
      </tbody>
    </table>
  );
}

/** Replace long runs of equal lines by their number. */
function folded(lines: readonly Line[]): (Line | number)[] {
  const isNear = lines.map((_, place) =>
    lines
      .slice(Math.max(0, place - CONTEXT), place + CONTEXT + 1)
      .some(({ kind }) => kind !== "same"),
  );
  if (!isNear.includes(true)) return [...lines];
  const found: (Line | number)[] = [];
  lines.forEach((line, place) => {
    const last = found.at(-1);
    if (isNear[place]) found.push(line);
    else if (typeof last === "number") found[found.length - 1] = last + 1;
    else found.push(1);
  });
  return found;
}

type CellProps = { parts: readonly Part[] | null; kind: Line["kind"]; side: "before" | "after" };

function Cell({ parts, kind, side }: CellProps) {
  if (parts === null) return <td className={css.absent} />;
  const changed = side === "before" ? css.gone : css.come;
  const Mark = side === "before" ? "del" : "ins";
  return (
    <td className={kind === "same" ? css.same : changed}>
      {parts.map(({ text, isChanged }, place) =>
        isChanged ? <Mark key={place}>{text}</Mark> : <span key={place}>{text}</span>,
      )}
      {/* An empty line keeps its height. */}
      {parts.length === 0 && "\u00a0"}
    </td>
  );
}

/** Words of both sides in one line: removed ones struck out, new ones underlined. */
export function Words({ parts }: { parts: { before: readonly Part[]; after: readonly Part[] } }) {
  return (
    <bdi dir="auto">
      {parts.before.map(({ text, isChanged }, place) =>
        isChanged ? <del key={place}>{text}</del> : <span key={place}>{text}</span>,
      )}
      {" → "}
      {parts.after.map(({ text, isChanged }, place) =>
        isChanged ? <ins key={place}>{text}</ins> : <span key={place}>{text}</span>,
      )}
    </bdi>
  );
}
