import { useLocation } from "wouter";

import type { Schema } from "~/api/client";
import { useCan } from "~/api/me";
import { Card, Code, DataTable, Dim, Id, Mono, StateWord, UserText, type State } from "~/design";
import { count, duration, percent, plural, short } from "~/design/format";

import { HourChart } from "./HourChart";
import { hrefOf } from "./links";
import css from "./Overview.module.css";
import { Sentence } from "./Sentence";
import { stateOfFresh } from "./Tiles";

type Overview = Schema<"Overview">;

/** The objectives of the settings, those that burn fastest first; nothing if there are none. */
export function Objectives({ objectives }: Pick<Overview, "objectives">) {
  if (objectives.length === 0) return null;
  return (
    <Card title="Objectives, last hour" aside="fastest burning first" flush>
      <DataTable
        label="Objectives"
        rows={[...objectives]}
        rowKey={(each) => `${each.kind} ${each.name} ${each.objective}`}
        columns={[
          {
            head: "of",
            cell: (each) => (
              <>
                {each.kind} <UserText mono>{each.name}</UserText>
              </>
            ),
          },
          { head: "objective", cell: (each) => each.objective },
          { head: "target", number: true, cell: (each) => percent(each.target) },
          {
            head: "missed",
            number: true,
            cell: (each) => `${short(each.bad)} of ${short(each.total)}`,
          },
          {
            head: "burn rate",
            number: true,
            cell: (each) => (
              <StateWord state={stateOfBurn(each.burn_rate)}>
                {each.burn_rate === null ? "—" : short(each.burn_rate)}
              </StateWord>
            ),
          },
        ]}
      />
    </Card>
  );
}

/** Return the state of a burn rate: above 1, the error budget does not last. */
function stateOfBurn(rate: number | null): State {
  if (rate === null) return "unknown";
  if (rate >= 6) return "failed";
  return rate > 1 ? "ageing" : "fresh";
}

/** The contexts of the last hour, those that were least fresh first. */
export function Contexts({ contexts }: Pick<Overview, "contexts">) {
  const [, navigate] = useLocation();
  const opens = useCan("GET /v1/contexts");
  const sorted = [...contexts].sort(
    (one, two) => (one.fresh_percent ?? 100) - (two.fresh_percent ?? 100) || two.total - one.total,
  );
  return (
    <Card title="Contexts, last hour" aside={contexts.length > 0 && "least fresh first"} flush>
      {contexts.length === 0 ? (
        <div className={css.first}>
          <p>No context was recorded in the last hour.</p>
          <Code text="headwater context assemble NAME KEY=VALUE" />
        </div>
      ) : (
        <DataTable
          label="Contexts of the last hour"
          rows={sorted}
          rowKey={(each) => each.name}
          {...(opens && {
            onOpen: (each: Schema<"ContextState">) =>
              navigate(hrefOf("records", { name: each.name }) ?? "/records"),
          })}
          columns={[
            { head: "context", cell: (each) => <UserText mono>{each.name}</UserText> },
            {
              head: "per min",
              number: true,
              cell: (each) => (each.per_minute < 0.1 ? "< 0.1" : short(each.per_minute)),
            },
            {
              head: "p99",
              number: true,
              cell: (each) => (each.p99_ms === null ? "—" : duration(each.p99_ms)),
            },
            {
              head: "fresh",
              number: true,
              cell: (each) => (
                <StateWord state={stateOfFresh(each.fresh_percent)}>
                  {each.fresh_percent === null ? "—" : percent(each.fresh_percent / 100)}
                </StateWord>
              ),
            },
            {
              head: <span className="visually-hidden">trend</span>,
              width: "22%",
              secondary: true,
              cell: (each) => (
                <div className={css.trend}>
                  <HourChart
                    size="row"
                    top={100}
                    values={each.fresh_series}
                    state={stateOfFresh(each.fresh_percent)}
                    label={`Fresh ${each.name} in the last hour`}
                  />
                </div>
              ),
            },
          ]}
        />
      )}
    </Card>
  );
}

/** The live workers, and the partitions that each of them holds. */
export function Workers({ workers, partitions, unowned }: Overview) {
  const groups = new Set(workers.map(({ group }) => group));
  return (
    <Card
      title="Workers"
      aside={
        unowned === 0 ? (
          `${plural(partitions, "partition")}, all owned`
        ) : (
          <StateWord state="failed">
            {unowned} of {plural(partitions, "partition")} without a worker
          </StateWord>
        )
      }
      flush
    >
      {workers.length === 0 ? (
        <div className={css.first}>
          <p>No worker runs: events are accepted and wait.</p>
          <Code text="headwater worker features.py" />
        </div>
      ) : (
        <DataTable
          label="Workers"
          rows={workers}
          rowKey={(each) => `${each.group} ${each.id}`}
          columns={[
            {
              head: "worker",
              cell: (each) => (
                <>
                  <Id value={each.id} head={12} tail={6} />
                  {groups.size > 1 && (
                    <Dim>
                      {" "}
                      <Mono>{each.group}</Mono>
                    </Dim>
                  )}
                </>
              ),
            },
            { head: "partitions", number: true, cell: (each) => count(each.partitions.length) },
            {
              head: "events/s",
              number: true,
              secondary: true,
              cell: (each) =>
                each.events_per_second === null ? "—" : short(each.events_per_second),
            },
            {
              head: "heartbeat",
              number: true,
              cell: (each) => duration(each.heartbeat_seconds * 1_000),
            },
          ]}
        />
      )}
    </Card>
  );
}

/** The parts of the store and its indexes. */
export function Stores({ stores }: Pick<Overview, "stores">) {
  return (
    <Card title="Stores" flush>
      <ul className={css.stores}>
        {stores.map((each) => (
          <li key={each.name}>
            <strong>{titled(each.name)}</strong>
            <span className={css.description}>
              {each.ok ? each.description : <Sentence>{each.detail}</Sentence>}
            </span>
            <StateWord state={each.ok ? "fresh" : each.needed ? "failed" : "ageing"}>
              {each.ok ? "ok" : "not ready"}
            </StateWord>
          </li>
        ))}
      </ul>
    </Card>
  );
}

const NAMES: Record<string, string> = { sqlite: "SQLite", redis: "Redis", postgres: "Postgres" };

function titled(name: string): string {
  return NAMES[name] ?? name.charAt(0).toUpperCase() + name.slice(1);
}
