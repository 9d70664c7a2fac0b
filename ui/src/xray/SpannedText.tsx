import type { Trace } from "./model";
import { piecesOf, type TextSpan } from "./spans";
import css from "./SpannedText.module.css";

type Props = { trace: Trace; text: string; spans: readonly TextSpan[] };

/** A text in which the words that came from features are marked. */
export function SpannedText({ trace, text, spans }: Props) {
  if (spans.length === 0) return text;
  return piecesOf(text, spans).map(({ text: part, span, isBetween }, index) =>
    span === null ? (
      part
    ) : (
      <mark
        key={index}
        className={isBetween ? css.between : isFresh(trace, span) ? css.mark : css.stale}
        title={isFresh(trace, span) ? span.feature : `${span.feature}: not fresh`}
      >
        {part}
      </mark>
    ),
  );
}

function isFresh(trace: Trace, { read, input }: TextSpan): boolean {
  const outer = trace.features[read];
  return (input === null ? outer : outer?.inputs[input])?.fresh ?? true;
}
