import { UserText } from "~/design";
import type { Trace } from "~/xray";

import { inputsOf, interactionOf, type Given } from "./given";
import css from "./Record.module.css";

/** The arguments of a context, and the interaction that it was made for. */
export function GivenLine({ trace }: { trace: Trace }) {
  const groups = [
    ["Inputs", inputsOf(trace)],
    ["Interaction", interactionOf(trace)],
  ] as const;
  return groups
    .filter(([, values]) => values.length > 0)
    .map(([title, values]) => <Group key={title} title={title} values={values} />);
}

function Group({ title, values }: { title: string; values: readonly Given[] }) {
  return (
    <dl className={css.given} aria-label={title}>
      <dt className={css.group}>{title}</dt>
      {values.map(({ name, text, absence }) => (
        <dd key={name}>
          <span className={css.argument}>
            <UserText mono>{name}</UserText>
          </span>{" "}
          {text === null ? <em>{absence}</em> : <UserText>{text === "" ? "“”" : text}</UserText>}
        </dd>
      ))}
    </dl>
  );
}
