import { useDebouncedCallback } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearchParams } from "wouter";

import { ProblemError } from "~/api/problems";
import { explained } from "~/api/queries";
import {
  ButtonLink,
  Card,
  CopyAs,
  Empty,
  ErrorPanel,
  Id,
  PageHead,
  Skeleton,
  StateBadge,
  Time,
  UserText,
  type Call,
} from "~/design";
import { duration, money } from "~/design/format";
import { Answers } from "~/outcomes";
import {
  DownloadButton,
  Proof,
  ProofBadge,
  recordText,
  subjectOf,
  useKeys,
  useVerified,
  Xray,
  type Trace,
} from "~/xray";

import { GivenLine } from "./GivenLine";
import css from "./Record.module.css";

/** One recorded context: what the model saw, why, and the proof. */
export default function RecordPage() {
  const { id = "" } = useParams();
  const [search, setSearch] = useSearchParams();
  // Browsers refuse to change the address as often as a held arrow key would.
  const remember = useDebouncedCallback((index: number) => {
    setSearch({ item: String(index) }, { replace: true });
  }, 300);
  const record = useQuery(explained(id));
  if (record.data === undefined) {
    return record.isError ? (
      <Failed id={id} error={record.error} retry={() => void record.refetch()} />
    ) : (
      <Loading id={id} />
    );
  }
  const item = search.get("item");
  return (
    <>
      <Head trace={record.data} />
      <GivenLine trace={record.data} />
      <Xray
        key={id}
        trace={record.data}
        initial={item !== null && /^\d{1,6}$/.test(item) ? Number(item) : undefined}
        onSelect={remember}
      >
        <Answers key={id} contextId={id} known={record.data.outcomes} />
      </Xray>
    </>
  );
}

function Head({ trace }: { trace: Trace }) {
  const { name, context_id: id } = trace;
  const subject = subjectOf(trace);
  return (
    <PageHead
      tab={subject === null ? name : `${name} for ${subject}`}
      title={
        <>
          {name}
          {subject !== null && (
            <>
              {" "}
              <span className={css.for}>for</span> <UserText>{subject}</UserText>
            </>
          )}
        </>
      }
      subtitle={<Facts trace={trace} />}
      actions={
        <>
          <Freshness trace={trace} />
          <Verified trace={trace} />
          <ButtonLink href={`/compare?a=${id}`}>Compare…</ButtonLink>
          <CopyAs call={callOf(id)} />
          <Export id={id} />
        </>
      }
    />
  );
}

/** The document that verifiers read. */
function Export({ id }: { id: string }) {
  return (
    <DownloadButton contextId={id} form="document" look="primary">
      Export record
    </DownloadButton>
  );
}

function Facts({ trace }: { trace: Trace }) {
  const { cost_nano_usd: cost, model, caller, version, signed_by: signer } = trace;
  const facts = [
    <Id key="id" value={trace.context_id} />,
    <Time key="at" at={trace.created_at} show="exact" />,
    <Time key="ago" at={trace.created_at} />,
    model === null ? "no model" : <UserText>{model}</UserText>,
    cost === null ? null : money(cost),
    duration(trace.assembly_ms),
    caller === null ? null : (
      <>
        by <UserText>{caller}</UserText>
      </>
    ),
    version === null ? null : (
      <>
        version <UserText>{version}</UserText>
      </>
    ),
    signer === null ? (
      "not signed"
    ) : (
      <>
        signed by key <UserText>{signer}</UserText>
      </>
    ),
  ];
  return (
    <span className={css.facts}>
      {facts
        .filter((fact) => fact !== null)
        .map((fact, index) => (
          <span key={index} className={css.fact}>
            {fact}
          </span>
        ))}
    </span>
  );
}

function Freshness({ trace }: { trace: Trace }) {
  const status = trace.freshness_status;
  const state = { guaranteed: "fresh", degraded: "ageing", refused: "failed" } as const;
  return <StateBadge state={state[status]}>{status}</StateBadge>;
}

/** The result of the proof, in a word; it is computed once for the whole page. */
function Verified({ trace }: { trace: Trace }) {
  const record = useQuery(recordText(trace.context_id));
  const answer = useVerified(record.data, useKeys(), trace.record_hash);
  if (record.isError && record.data === undefined)
    return <StateBadge state="unknown">not checked</StateBadge>;
  return (
    <>
      <ProofBadge answer={answer} />
      {trace.redacted.length > 0 && <StateBadge state="unknown">redacted</StateBadge>}
      {trace.redacted.length === 0 && trace.withheld.length > 0 && (
        <StateBadge state="unknown">private</StateBadge>
      )}
    </>
  );
}

function Failed({ id, error, retry }: { id: string; error: unknown; retry: () => void }) {
  const status = error instanceof ProblemError ? error.status : 0;
  const isDamaged = error instanceof ProblemError && error.problem.type.endsWith("damaged-record");
  return (
    <>
      <PageHead
        tab="Record"
        title="Record"
        subtitle={<Id value={id} />}
        actions={
          isDamaged && (
            <>
              <StateBadge state="failed">broken</StateBadge>
              <Export id={id} />
            </>
          )
        }
      />
      {status === 404 ? (
        <Empty title="No record has this id">
          It may have been pruned, or the id is incomplete.{" "}
          <Link href="/records">See all records</Link>
        </Empty>
      ) : (
        <Card flush>
          <ErrorPanel error={error} retry={retry} />
        </Card>
      )}
      {isDamaged && (
        <div className={css.proof}>
          <Proof contextId={id} recordHash={null} />
        </div>
      )}
    </>
  );
}

function Loading({ id }: { id: string }) {
  return (
    <>
      <PageHead tab="Record" title="Record" subtitle={<Id value={id} />} />
      <div className={css.loading}>
        <Card>
          <Skeleton lines={1} height={40} />
        </Card>
        <Card>
          <Skeleton lines={8} />
        </Card>
      </div>
    </>
  );
}

function callOf(id: string): Call {
  return {
    path: `/context/${id}/explain`,
    cli: ["context", "show", id],
    python: `records.explain(${JSON.stringify(id)})`,
  };
}
