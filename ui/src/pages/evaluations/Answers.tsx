import { Link } from "wouter";

import type { Schema } from "~/api/client";
import { Card, DataTable, Dim, Mono, StateText, UserText, type Column } from "~/design";
import { count, plural, short, shortened } from "~/design/format";

import css from "./Evaluations.module.css";
import type { Report } from "./queries";
import { chanceOf, hrefOf, meaningOf } from "./words";

type Score = Schema<"ScoreComparison">;

/** What a model answers to both sides of the contexts whose text changed, and how that scores. */
export function Answers({ report: { run, answers } }: { report: Report }) {
  if (!answers) return null;
  const problems = Object.entries(answers.problems);
  const columns: Column<Score>[] = [
    { head: "Score", cell: ({ name }) => <UserText mono>{name}</UserText> },
    {
      head: "Mean",
      number: true,
      cell: ({ before, after }) => `${short(before)} → ${short(after)}`,
    },
    {
      head: "Better / same / worse",
      number: true,
      cell: ({ wins, ties, losses }) => [wins, ties, losses].map(count).join(" / "),
    },
    {
      head: "p",
      number: true,
      whole: true,
      cell: ({ p_value, is_exact }) => (
        <span title={`permutation test, ${is_exact ? "all permutations" : "a sample of them"}`}>
          {chanceOf(p_value)}
        </span>
      ),
    },
    {
      head: "p of signs",
      number: true,
      secondary: true,
      whole: true,
      cell: ({ p_sign }) => <span title="exact sign test">{chanceOf(p_sign)}</span>,
    },
    { head: "Meaning", secondary: true, cell: (score) => meaningOf(score) },
    {
      head: "Fell most",
      secondary: true,
      cell: ({ worst }) =>
        worst.length === 0 ? (
          <Dim>—</Dim>
        ) : (
          <span className={css.tags}>
            {worst.slice(0, 3).map(({ context_id, before, after }) => (
              <Link
                key={context_id}
                href={hrefOf(run.cohort, run.run_id, context_id)}
                title={`${short(before)} → ${short(after)}`}
              >
                <Mono>{shortened(context_id)}</Mono>
              </Link>
            ))}
          </span>
        ),
    },
  ];
  return (
    <Card flush title="Scores of the answers" aside={<Asked answers={answers} />}>
      {answers.scores.length > 0 ? (
        <DataTable
          label="Scores"
          columns={columns}
          rows={answers.scores}
          rowKey={({ name }) => name}
        />
      ) : (
        <p className={css.none}>
          {answers.contexts === 0
            ? "No text changed, so no question was asked."
            : "No answer has a score on both sides."}
        </p>
      )}
      {problems.length > 0 && (
        <ul className={css.problems} aria-label="Calls that failed">
          {problems.map(([problem, number]) => (
            <li key={problem}>
              <StateText state="failed">
                {plural(number, "call")} failed: <UserText>{problem}</UserText>
              </StateText>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

/** The function that answered, and of how many contexts both sides have an answer. */
function Asked({ answers }: { answers: NonNullable<Report["answers"]> }) {
  const { answer, answered, contexts, recorded, withheld } = answers;
  return (
    <span>
      <UserText mono>{answer}</UserText> answered both sides of {count(answered)} of{" "}
      {plural(contexts, "context")} with another text
      {recorded > 0 && `, ${plural(recorded, "former answer")} as recorded`}
      {withheld > 0 && `, ${count(withheld)} withheld`}
    </span>
  );
}
