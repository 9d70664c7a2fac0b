import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "wouter";

import { ProblemError } from "~/api/problems";
import { declarations } from "~/api/queries";
import {
  ButtonLink,
  CopyAs,
  Empty,
  ErrorPanel,
  Loaded,
  PageHead,
  Skeleton,
  type Call,
} from "~/design";
import { pythonValue } from "~/design/calls";
import { objectOf, parsed, textsOf, type Texts } from "~/parameters/parameters";

import { AssemblyForm } from "./AssemblyForm";
import { durationText, positive, type ContextListing, type Limits } from "./limits";
import css from "./Playground.module.css";
import { Result } from "./Result";
import { RunList } from "./RunList";
import { overridesOf, useAssembly, useRuns, type Request, type Run } from "./runs";

/** Assemble a context by hand and see what the model would get. */
export default function PlaygroundPage() {
  const query = useQuery(declarations);
  const [search] = useSearchParams();
  return (
    <Loaded query={query} loading={<Skeleton lines={8} />}>
      {({ contexts }) => {
        const named = search.get("context");
        const context = contexts.find(({ name }) => name === named) ?? contexts[0];
        if (context === undefined) {
          return (
            <>
              <PageHead tab="Playground" title="Playground" />
              <Empty title="No context is declared" command="headwater init">
                Declare a function with <code>@context(store)</code>; this command writes a project
                with one.
              </Empty>
            </>
          );
        }
        return <Playground key={context.name} context={context} contexts={contexts} />;
      }}
    </Loaded>
  );
}

type Props = { context: ContextListing; contexts: readonly ContextListing[] };

function Playground({ context, contexts }: Props) {
  const [search, setSearch] = useSearchParams();
  const shown = search.get("run");
  const [texts, setTexts] = useState<Texts>(() =>
    textsOf(context.parameters, objectOf(search.get("params"))),
  );
  const [limits, setLimits] = useState<Limits>({
    maxTokens: positive(search.get("max_tokens")),
    slaMs: positive(search.get("sla_ms")),
  });
  const [wasSent, setWasSent] = useState(false);
  const runs = useRuns().filter((run) => run.context === context.name);
  const show = (run: Run) => setSearch(addressOf(run));
  const assembly = useAssembly(show);
  const { params, problems } = parsed(context.parameters, texts);
  const isComplete = Object.keys(problems).length === 0;
  const request: Request = { context: context.name, params, limits };

  const send = () => {
    setWasSent(true);
    if (isComplete) assembly.run(request);
  };
  const limit = (changed: Limits) => {
    setLimits(changed);
    // The first run is asked for; after it, the sliders run the same question again.
    if (isComplete && shown !== null) assembly.runSoon({ ...request, limits: changed });
  };
  return (
    <>
      <PageHead
        tab={`${context.name} · Playground`}
        title="Playground"
        subtitle="Assemble a context and see what the model would get. Every run is recorded."
        actions={<CopyAs call={callOf(request)} />}
      />
      <AssemblyForm
        {...{ context, contexts, texts, limits, isRunning: assembly.isRunning }}
        problems={{ ...(wasSent ? problems : {}), ...fieldProblems(assembly.error) }}
        onContext={(name) => setSearch({ context: name })}
        onTexts={setTexts}
        onLimits={limit}
        onSend={send}
      />
      <RunList
        runs={runs}
        shown={shown}
        onShow={(run) => {
          setTexts(textsOf(context.parameters, run.params));
          setLimits(run.limits);
          show(run);
        }}
      />
      <div className={css.result} aria-busy={assembly.isRunning}>
        {assembly.error !== null ? (
          <Failure error={assembly.error} retry={send} />
        ) : shown === null ? (
          <Empty title="Nothing assembled yet">
            Fill in the arguments and press Enter. The result is taken apart here: tokens, items,
            ages and proof.
          </Empty>
        ) : (
          <Result key={shown} id={shown} run={runs.find((run) => idOf(run) === shown)} />
        )}
      </div>
    </>
  );
}

function idOf({ result }: Run): string {
  return result.context_id;
}

/** Return the query string that shows a run again, and can assemble it again. */
function addressOf(run: Run): Record<string, string> {
  const { context, params, limits } = run;
  return {
    context,
    params: JSON.stringify(params),
    ...(limits.maxTokens === null ? {} : { max_tokens: String(limits.maxTokens) }),
    ...(limits.slaMs === null ? {} : { sla_ms: String(limits.slaMs) }),
    run: idOf(run),
  };
}

function callOf(request: Request): Call {
  const { context, params, limits } = request;
  return {
    method: "POST",
    path: `/v1/contexts/${context}`,
    body: { params, ...overridesOf(limits) },
    cli: [
      ...["context", "assemble", context, JSON.stringify(params)],
      ...(limits.maxTokens === null ? [] : ["--max-tokens", String(limits.maxTokens)]),
      ...(limits.slaMs === null ? [] : ["--freshness-sla", durationText(limits.slaMs)]),
    ],
    python: `assemble(${pythonValue(context)}, ${pythonValue(params)})`,
  };
}

/** Return the problem of the argument that the server refused, by its name. */
function fieldProblems(error: Error | null): Record<string, string> {
  if (!(error instanceof ProblemError)) return {};
  const { field } = error.problem;
  if (typeof field !== "string" || !field.startsWith("params.")) return {};
  return { [field.slice("params.".length)]: error.message };
}

function Failure({ error, retry }: { error: Error; retry: () => void }) {
  const id = error instanceof ProblemError ? error.problem.context_id : undefined;
  return (
    <>
      <ErrorPanel error={error} retry={retry} />
      {typeof id === "string" && (
        <p className={css.refusal}>
          <ButtonLink href={`/records/${id}`}>Open the record of the refusal</ButtonLink>
        </p>
      )}
    </>
  );
}
