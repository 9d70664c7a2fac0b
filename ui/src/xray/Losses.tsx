import { Mono, StateIcon } from "~/design";
import { plural } from "~/design/format";

import type { Trace } from "./model";
import css from "./Violations.module.css";

/** What providers cannot be sent as it was declared, by provider. */
export function Losses({ trace }: { trace: Trace }) {
  const losses = trace.losses;
  if (losses.length === 0) return null;
  const providers = [...new Set(losses.map(({ provider }) => provider))];
  return (
    <section className={css.why} data-state="ageing" aria-label="Not every provider can express it">
      <strong className={css.head}>
        <StateIcon state="ageing" />
        Not every provider can express it
      </strong>
      <ul className={css.reasons}>
        {providers.map((provider) => (
          <li key={provider}>
            {provider}: <Names names={losses.filter((each) => each.provider === provider)} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Names({ names }: { names: readonly { name: string }[] }) {
  const counts = new Map<string, number>();
  for (const { name } of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].map(([name, times], index) => (
    <span key={name}>
      {index > 0 && ", "}
      <Mono>{name}</Mono>
      {times > 1 && ` (${plural(times, "item")})`}
    </span>
  ));
}
