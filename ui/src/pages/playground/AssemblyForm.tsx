import { Button, Card, Choice, Tag } from "~/design";
import { count, duration } from "~/design/format";
import { ParameterFields } from "~/parameters/ParameterFields";
import type { Texts } from "~/parameters/parameters";

import { LimitSlider } from "./LimitSlider";
import {
  budgetPlaces,
  largestBudget,
  longestSla,
  placeOfSla,
  slaStops,
  type ContextListing,
  type Limits,
} from "./limits";
import css from "./Playground.module.css";

type Props = {
  context: ContextListing;
  contexts: readonly ContextListing[];
  texts: Texts;
  limits: Limits;
  problems: Readonly<Record<string, string>>;
  isRunning: boolean;
  onContext: (name: string) => void;
  onTexts: (texts: Texts) => void;
  onLimits: (limits: Limits) => void;
  onSend: () => void;
};

/** The arguments of a context after its signature, and the limits that a run may tighten. */
export function AssemblyForm(props: Props) {
  const { context, contexts, texts, problems, isRunning } = props;
  return (
    <Card>
      <form
        className={css.form}
        aria-label="Arguments of the context"
        onSubmit={(event) => {
          event.preventDefault();
          props.onSend();
        }}
      >
        <div className={css.about}>
          <Choice
            label="Context"
            value={context.name}
            onChange={props.onContext}
            options={contexts.map(({ name }) => [name, name] as const)}
          />
          {context.description !== "" && <p className={css.description}>{context.description}</p>}
          <p className={css.tags}>
            {context.model !== null && <Tag>{context.model}</Tag>}
            {context.freshness_strict && <Tag>refuses stale values</Tag>}
          </p>
        </div>
        <div className={css.arguments}>
          {context.parameters.length === 0 && <p className={css.none}>It takes no arguments.</p>}
          <ParameterFields
            parameters={context.parameters}
            texts={texts}
            onChange={props.onTexts}
            problems={problems}
          />
          <div>
            <Button type="submit" look="primary" busy={isRunning}>
              {isRunning ? "Assembling…" : "Assemble"}
            </Button>
          </div>
        </div>
        <Sliders {...props} />
      </form>
    </Card>
  );
}

function Sliders({ context, limits, onLimits }: Props) {
  const largest = largestBudget(context);
  const longest = longestSla(context);
  const stops = slaStops(longest);
  const { maxTokens, slaMs } = limits;
  return (
    <div className={css.sliders}>
      <LimitSlider
        label="Token budget"
        places={budgetPlaces(largest)}
        place={maxTokens ?? largest}
        words={
          maxTokens === null
            ? declared(context.max_tokens, count(largest))
            : `${count(maxTokens)} of ${count(largest)}`
        }
        onChange={(place) => onLimits({ ...limits, maxTokens: place < largest ? place : null })}
      />
      <LimitSlider
        label="Freshness SLA"
        places={{ min: 0, max: stops.length, step: 1 }}
        place={placeOfSla(slaMs, stops)}
        words={
          slaMs === null
            ? declared(context.freshness_sla_ms, duration(longest))
            : `${duration(slaMs)} of ${duration(longest)}`
        }
        onChange={(place) => onLimits({ ...limits, slaMs: stops[place] ?? null })}
      />
      <p className={css.none}>
        A run may be stricter than the declaration. After the first run, moving a slider runs it
        again.
      </p>
    </div>
  );
}

function declared(limit: number | null, words: string): string {
  return limit === null ? "no limit declared" : `${words}, as declared`;
}
