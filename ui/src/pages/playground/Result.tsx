import { useQuery } from "@tanstack/react-query";

import { useCan } from "~/api/me";
import { explained } from "~/api/queries";
import { ButtonLink, Card, Code, Id, Loaded, Skeleton } from "~/design";
import { duration, money, plural } from "~/design/format";
import { Xray } from "~/xray";

import css from "./Playground.module.css";
import type { Run } from "./runs";

/** The X-ray of a run; without the scope to read records, its text. */
export function Result({ id, run }: { id: string; run: Run | undefined }) {
  const mayExplain = useCan("GET /context/{id}/explain");
  const record = useQuery({ ...explained(id), enabled: mayExplain });
  return (
    <>
      <div className={css.facts}>
        <Id value={id} />
        {run !== undefined && <span>{factsOf(run)}</span>}
        {mayExplain && <ButtonLink href={`/records/${id}`}>Open the record</ButtonLink>}
      </div>
      {mayExplain ? (
        <Loaded query={record} loading={<Skeleton lines={10} />}>
          {(trace) => <Xray trace={trace} />}
        </Loaded>
      ) : (
        run !== undefined && (
          <Card title="What the model is given">
            <Code text={run.result.content} label="Copy the text" />
          </Card>
        )
      )}
    </>
  );
}

function factsOf({ result, took }: Run): string {
  return [
    plural(result.tokens, "token"),
    `assembled in ${duration(took)}`,
    ...(result.cost_nano_usd === null ? [] : [money(result.cost_nano_usd)]),
  ].join(" · ");
}
