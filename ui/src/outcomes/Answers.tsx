import { useQuery } from "@tanstack/react-query";

import { useCan } from "~/api/me";
import { Card, StateBadge } from "~/design";
import { count } from "~/design/format";

import css from "./Answers.module.css";
import { GivenAnswer } from "./GivenAnswer";
import { answersOf, type Answer, type Outcome } from "./model";
import { outcomesOf, useSending } from "./queries";
import { SaidList } from "./SaidList";
import { SayForms } from "./SayForms";

type Props = {
  contextId: string;
  /** The outcomes that the explanation of the context has. */
  known: readonly Outcome[];
};

/** What the model answered to a context, what it cost, and what people and programs said about it. */
export function Answers({ contextId, known }: Props) {
  const { data } = useQuery({ ...outcomesOf(contextId), initialData: known });
  return <Listed contextId={contextId} outcomes={data} />;
}

const NOTHING: Answer = { given: null, said: [] };

function Listed({ contextId, outcomes }: { contextId: string; outcomes: readonly Outcome[] }) {
  const found = answersOf(outcomes);
  const answers = found.length === 0 ? [NOTHING] : found;
  const responses = answers.filter(({ given }) => given?.kind === "response");
  return answers.map((answer) => (
    <Card
      key={answer.given?.outcome_id ?? "none"}
      title={titleOf(answer, responses)}
      aside={
        answer.given?.kind === "error" && <StateBadge state="failed">the call failed</StateBadge>
      }
      flush
    >
      {answer.given === null ? (
        <NoAnswer isJudged={answer.said.length > 0} />
      ) : (
        <GivenAnswer outcome={answer.given} />
      )}
      <Judgements contextId={contextId} answer={answer} />
    </Card>
  ));
}

function titleOf(answer: Answer, responses: readonly Answer[]): string {
  if (answer.given?.kind === "error") return "A failed call";
  if (answer.given === null && responses.length > 0) return "About the context";
  if (responses.length < 2) return "The answer";
  return `Answer ${count(responses.indexOf(answer) + 1)} of ${count(responses.length)}`;
}

function NoAnswer({ isJudged }: { isJudged: boolean }) {
  return (
    <p className={css.none}>
      {isJudged ? "The answer itself was not recorded. " : "No answer was recorded. "}
      <code>headwater.wrap(client)</code> records the answer of every call that is made inside{" "}
      <code>async with ctx:</code>.
    </p>
  );
}

/** The scores and corrections of an answer, and the forms for more. */
function Judgements({ contextId, answer }: { contextId: string; answer: Answer }) {
  const mayAdd = useCan("POST /v1/context/{id}/outcomes");
  const sending = useSending(contextId);
  return (
    <>
      <SaidList said={answer.said} sending={sending} />
      {mayAdd && answer.given?.kind !== "error" && (
        <SayForms answer={answer.given} send={sending.send} />
      )}
    </>
  );
}
