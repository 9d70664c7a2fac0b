import { Link } from "wouter";

import { useMayOpen } from "~/app/allowed";
import { Mono, stateOfAge, StateWord, UserText, type State } from "~/design";
import { duration, inline, percent } from "~/design/format";
import { windowWords } from "~/windows";

import { historyOf } from "./links";
import {
  type ItemView,
  placeKey,
  pointerOf,
  valuesOf,
  type PlacedValue,
  type TraceView,
  type Value,
} from "./model";
import { piecesOf } from "./spans";
import css from "./Inspector.module.css";

/** The values that a template read, with those they were computed from. */
export function Reads({ view, item }: { view: TraceView; item: ItemView }) {
  const values = item.item.reads.flatMap((read) => valuesOf(view.trace, read));
  const words = wordsOf(item);
  return (
    <ul className={css.reads}>
      {values.map((placed) => (
        <li key={placeKey(placed)} className={placed.input === null ? css.read : css.input}>
          <Name value={placed.value} at={view.trace.created_at} />{" "}
          <Shown view={view} placed={placed} words={words.get(placeKey(placed))} />{" "}
          <Age value={placed.value} />
          {placed.value.window && <WindowLine of={placed.value.window} />}
        </li>
      ))}
    </ul>
  );
}

function Name({ value, at }: { value: Value; at: string }) {
  const mayOpen = useMayOpen();
  const href = historyOf(value, at);
  return href === null || value.written_at === null || !mayOpen(href) ? (
    <Mono>{value.feature}</Mono>
  ) : (
    <Link href={href}>
      <Mono>{value.feature}</Mono>
    </Link>
  );
}

/** The words of an item by the value that they came from: JSON cannot tell 100.0 from 100. */
function wordsOf({ item, text }: ItemView): Map<string, string> {
  const whole = item.spans.map((span) => ({ span, found: piecesOf(text ?? "", [span]) }));
  return new Map(
    whole.map(({ span, found }) => [
      placeKey(span),
      found.find((piece) => piece.span !== null)?.text ?? "",
    ]),
  );
}

type ShownProps = { view: TraceView; placed: PlacedValue; words: string | undefined };

function Shown({ view, placed, words }: ShownProps) {
  const absence = view.absent(`${pointerOf(placed)}/value`);
  if (absence !== null) return <em className={css.dim}>{absence}</em>;
  if (placed.value.source === "missing") return <em className={css.dim}>missing</em>;
  const text = words ?? inline(placed.value.value);
  return <UserText>{text.length > 120 ? `${text.slice(0, 120)} …` : text}</UserText>;
}

/** The window that a value was evaluated of, and when it was last added to before. */
function WindowLine({ of }: { of: NonNullable<Value["window"]> }) {
  const { read_at, last_fold, relative_error: error } = of;
  const fold =
    last_fold === null
      ? "nothing had contributed"
      : `last fold ${duration(Math.max(0, Date.parse(read_at) - Date.parse(last_fold)))} before`;
  return (
    <div className={css.dim}>
      <UserText>{of.aggregate}</UserText> over {windowWords(of)}; {fold}
      {error !== null && <>; a sketch, error up to {percent(Number(error))}</>}
    </div>
  );
}

/** How old a value was, in the state that the freshness rules gave it. */
export function Age({ value }: { value: Value }) {
  const { age_ms: age, source, rule } = value;
  // A value that is judged by its inputs is as fresh as these, which stand below it.
  if (rule === "inputs" && source === "computed") return <span className={css.age}>computed</span>;
  const text = age === null ? source : duration(age);
  const state = stateOf(value);
  if (state === "fresh" || state === "unknown") return <span className={css.age}>{text}</span>;
  return <StateWord state={state}>{text}</StateWord>;
}

/** The state of a value as the record judged it; a fresh one may be close to its limit. */
export function stateOf({ fresh, age_ms: age, sla_ms: sla }: Judged): State {
  if (!fresh) return "failed";
  return age === null ? "unknown" : stateOfAge(age, sla);
}

type Judged = Pick<Value, "fresh" | "age_ms" | "sla_ms">;
