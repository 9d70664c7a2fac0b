import {
  IconMessageCircle,
  IconPencil,
  IconThumbDown,
  IconThumbUp,
  IconX,
} from "@tabler/icons-react";
import type { ReactNode } from "react";

import { UnreachableError } from "~/api/problems";
import { Button, explained, IconButton, Mono, StateWord, Time, UserText } from "~/design";

import css from "./Answers.module.css";
import {
  absentWords,
  scoreText,
  whoSaid,
  type NewOutcome,
  type Outcome,
  type Score,
} from "./model";
import type { Sending, Sent } from "./queries";
import { SaidMessages } from "./SaidMessages";

type Props = { said: readonly Outcome[]; sending: Sending };

/** Scores and corrections of an answer in the order of time, and last those on their way. */
export function SaidList({ said, sending }: Props) {
  const known = new Set(said.map(({ outcome_id: id }) => id));
  const waiting = sending.sent.filter(({ given }) => !known.has(given.outcome_id));
  if (said.length + waiting.length === 0) return null;
  return (
    <ul className={css.said} aria-label="Scores and corrections">
      {said.map((outcome) => (
        <li key={outcome.outcome_id}>
          <Line outcome={outcome} />
        </li>
      ))}
      {waiting.map((each) => (
        <li key={each.given.outcome_id} aria-busy={each.error === null}>
          <Waiting each={each} sending={sending} />
        </li>
      ))}
    </ul>
  );
}

function Line({ outcome }: { outcome: Outcome }) {
  const { score, response } = outcome;
  const absent = absentWords(outcome);
  return (
    <>
      {score ? (
        <ScoreLine score={score} />
      ) : (
        <Row icon={<IconPencil size={15} aria-hidden />}>
          <strong>Correction</strong>
        </Row>
      )}
      <span className={css.who}>
        <UserText>{whoSaid(outcome)}</UserText>, <Time at={outcome.at} />
      </span>
      {score?.explanation && (
        <p className={css.why}>
          <UserText>{score.explanation}</UserText>
        </p>
      )}
      {response?.messages && response.messages.length > 0 && (
        <div className={css.correction}>
          <SaidMessages messages={response.messages} />
        </div>
      )}
      {absent !== null && <p className={css.why}>{absent}</p>}
    </>
  );
}

function ScoreLine({ score }: { score: Score }) {
  const icons = { good: IconThumbUp, bad: IconThumbDown } as const;
  const given = scoreText(score);
  const Icon =
    typeof score.flag === "boolean" ? icons[score.flag ? "good" : "bad"] : IconMessageCircle;
  return (
    <Row icon={<Icon size={15} aria-hidden />}>
      <Mono>
        <bdi>{score.name}</bdi>
      </Mono>{" "}
      <strong>{given === null ? "withheld" : <UserText>{given}</UserText>}</strong>
      {score.identifier && (
        <span className={css.quiet}>
          {" "}
          by <UserText>{score.identifier}</UserText>
        </span>
      )}
    </Row>
  );
}

function Row({ icon, children }: { icon: ReactNode; children: ReactNode }) {
  return (
    <span className={css.verdict}>
      {icon}
      <span>{children}</span>
    </span>
  );
}

/** One on its way; if it failed, why, and what to do. */
function Waiting({ each: { given, error }, sending }: { each: Sent; sending: Sending }) {
  return (
    <>
      <Given given={given} />
      {error === null ? (
        <span className={css.who}>saving…</span>
      ) : (
        <span className={css.actions} role="alert">
          <StateWord state="failed">not saved</StateWord>
          <Button onClick={() => sending.send(given)}>Try again</Button>
          <IconButton label="Discard" onClick={() => sending.drop(given)}>
            <IconX size={15} />
          </IconButton>
          <span className={css.problem}>{reasonOf(error)}</span>
        </span>
      )}
    </>
  );
}

function reasonOf(error: unknown): string {
  const { title, meaning } = explained(error);
  if (error instanceof UnreachableError) return `${title}. Until then it is on this page only.`;
  return `${title}: ${meaning}`;
}

function Given({ given }: { given: NewOutcome }) {
  if ("correction" in given) {
    return (
      <Row icon={<IconPencil size={15} aria-hidden />}>
        <strong>Correction</strong> <UserText>{given.correction}</UserText>
      </Row>
    );
  }
  const { score: name, explanation } = given;
  return (
    <>
      <ScoreLine score={{ ...given, name }} />
      {explanation && (
        <p className={css.why}>
          <UserText>{explanation}</UserText>
        </p>
      )}
    </>
  );
}
