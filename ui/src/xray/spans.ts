/** The words of a text with the feature behind each. Pure. */
import type { Schema } from "~/api/client";

export type TextSpan = Schema<"TextSpan">;

/** A part of a text: literal, or a value; inside a value that is a template, the innermost wins. */
type Piece = {
  text: string;
  span: TextSpan | null;
  /** The words of a template between the values inside it. */
  isBetween: boolean;
};

/** Return a text as pieces; the spans count Unicode code points, and may lie in one another. */
export function piecesOf(text: string, spans: readonly TextSpan[]): Piece[] {
  if (spans.length === 0) return text === "" ? [] : [{ text, span: null, isBetween: false }];
  const unit = codeUnits(text);
  const ranges = spans.map((span) => ({ span, start: unit(span.start), end: unit(span.end) }));
  const cuts = new Set([0, text.length, ...ranges.flatMap(({ start, end }) => [start, end])]);
  const places = [...cuts].filter((at) => at <= text.length).sort((one, two) => one - two);
  const pieces: Piece[] = [];
  for (const [index, start] of places.slice(0, -1).entries()) {
    const end = places[index + 1] ?? text.length;
    const around = ranges.filter((range) => range.start <= start && end <= range.end);
    const span = around.reduce<(typeof around)[number] | null>(
      (inner, each) => (inner && inner.end - inner.start < each.end - each.start ? inner : each),
      null,
    );
    const isBetween =
      span !== null &&
      ranges.some((each) => each !== span && span.start <= each.start && each.end <= span.end);
    pieces.push({ text: text.slice(start, end), span: span?.span ?? null, isBetween });
  }
  return pieces;
}

/** Return a function from a number of code points to the index in UTF-16. */
function codeUnits(text: string): (points: number) => number {
  if (!/[\uD800-\uDBFF]/.test(text)) return (points) => points;
  const starts: number[] = [];
  let at = 0;
  for (const character of text) {
    starts.push(at);
    at += character.length;
  }
  return (points) => starts[points] ?? text.length;
}
