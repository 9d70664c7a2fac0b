import { Code, Id, KeyValues, Mono, Time, UserText } from "~/design";
import { count, duration, money, pretty } from "~/design/format";
import { RoleHead } from "~/messages";

import css from "./Answers.module.css";
import { absentWords, errorText, usageWords, type Outcome, type Response } from "./model";
import { SaidMessages } from "./SaidMessages";

/** An answer of a model at the left, and the facts of the call at the right. */
export function GivenAnswer({ outcome }: { outcome: Outcome }) {
  const response = outcome.response ?? {};
  return (
    <div className={css.answer}>
      <div className={css.words}>
        <RoleHead lane="assistant">
          <span>
            <Time at={outcome.at} />
          </span>
        </RoleHead>
        <Words outcome={outcome} response={response} />
      </div>
      <div className={css.facts}>
        <KeyValues rows={factsOf(outcome, response)} />
        <RawUsage response={response} />
      </div>
    </div>
  );
}

function Words({ outcome, response }: { outcome: Outcome; response: Response }) {
  const absent = absentWords(outcome);
  const messages = response.messages ?? [];
  if (outcome.kind === "error") {
    return (
      <p className={css.failed}>
        <Mono>
          <bdi>{response.error_type ?? "unknown error"}</bdi>
        </Mono>
        : the model gave no answer.
      </p>
    );
  }
  return (
    <>
      {messages.length > 0 && <SaidMessages messages={messages} />}
      {absent !== null && <p className={css.absent}>{absent}</p>}
      {messages.length === 0 && absent === null && (
        <p className={css.absent}>The text of the answer was not recorded.</p>
      )}
    </>
  );
}

type Row = readonly [name: string, value: React.ReactNode];

function factsOf(outcome: Outcome, response: Response): Row[] {
  const { usage } = response;
  const finish = response.finish_reasons ?? [];
  return [
    ["Model", modelOf(response)],
    ["Provider", text(response.provider)],
    ["Finished by", finish.length === 0 ? null : <UserText mono>{finish.join(", ")}</UserText>],
    ["Time", timing(response)],
    ["Tokens", usage ? <Lines lines={usageWords(usage)} /> : null],
    ["Predicted", predictedOf(outcome, usage?.input ?? null)],
    ["Price", number(outcome.cost_nano_usd, money)],
    ["Response id", id(response.response_id)],
    ["Outcome", <Id key="hash" value={outcome.outcome_hash} head={13} />],
    ["Signed by", text(outcome.signed_by)],
  ];
}

const text = (value: string | null | undefined) => (value ? <UserText>{value}</UserText> : null);
const id = (value: string | null | undefined) => (value ? <Id value={value} /> : null);
const number = (value: number | null | undefined, words: (value: number) => string) =>
  typeof value === "number" ? words(value) : null;

/** The model that answered, and the one that was asked for if that is another name. */
function modelOf({ model, model_asked: asked }: Response) {
  const used = model ?? asked;
  if (!used) return null;
  return (
    <>
      <UserText>{used}</UserText>
      {asked && asked !== used && (
        <>
          , asked for <UserText>{asked}</UserText>
        </>
      )}
    </>
  );
}

function timing({ latency_ms: whole, first_token_ms: first }: Response): string | null {
  const parts = [
    number(whole, duration),
    number(first, (ms) => `first token after ${duration(ms)}`),
  ].filter((part) => part !== null);
  return parts.length === 0 ? null : parts.join(", ");
}

function predictedOf({ predicted }: Outcome, billed: number | null): string | null {
  if (typeof predicted !== "number") return null;
  if (billed === null) return count(predicted);
  return `${count(predicted)}, billed ${count(billed)} (${errorText(predicted, billed)})`;
}

function Lines({ lines }: { lines: readonly string[] }) {
  return lines.map((line) => (
    <span key={line} className={css.line}>
      {line}
    </span>
  ));
}

/** What the provider said about the tokens, unchanged. */
function RawUsage({ response: { usage } }: { response: Response }) {
  if (usage?.raw === undefined || usage.raw === null) return null;
  return (
    <details className={css.fold}>
      <summary>Usage as the provider sent it</summary>
      <Code text={pretty(usage.raw)} label="Copy the usage" />
    </details>
  );
}
