import { IconPencil, IconThumbDown, IconThumbUp } from "@tabler/icons-react";
import { useState, type SubmitEvent } from "react";

import { Button, Choice, Field, TextArea } from "~/design";

import css from "./Answers.module.css";
import { answerText, type Given, type NewOutcome, type Outcome } from "./model";

type Props = { answer: Outcome | null; send: (given: NewOutcome) => void };

/** What a person may say about an answer: how good it was, and what it should have been. */
export function SayForms({ answer, send }: Props) {
  const [isCorrecting, setCorrecting] = useState(false);
  const links: Record<string, string> = answer === null ? {} : { answer: answer.outcome_id };
  const about = () => ({ outcome_id: crypto.randomUUID(), judge: "human" as const, links });
  return (
    <div className={css.forms}>
      <ScoreForm
        onScore={(score) => send({ ...about(), ...score })}
        onCorrect={isCorrecting ? undefined : () => setCorrecting(true)}
      />
      {isCorrecting && (
        <CorrectionForm
          initial={answer?.response ? answerText(answer.response) : ""}
          onCancel={() => setCorrecting(false)}
          onCorrect={(correction) => {
            send({ ...about(), correction });
            setCorrecting(false);
          }}
        />
      )}
    </div>
  );
}

const WAYS = [
  ["flag", "Good or bad"],
  ["value", "A number"],
  ["label", "A label"],
] as const;
type Way = (typeof WAYS)[number][0];

const NAMES: Readonly<Record<Way, string>> = {
  flag: "helpful",
  value: "quality",
  label: "verdict",
};

type Scored = { score: string; explanation?: string } & Given;

type ScoreProps = {
  onScore: (score: Scored) => void;
  onCorrect: (() => void) | undefined;
};

function ScoreForm({ onScore, onCorrect }: ScoreProps) {
  const [way, setWay] = useState<Way>("flag");
  const [name, setName] = useState("");
  const [flag, setFlag] = useState<boolean | null>(null);
  const [given, setGiven] = useState("");
  const [why, setWhy] = useState("");
  const score = scoreOf(way, flag, given);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (score === null) return;
    onScore({
      ...score,
      score: name.trim() || NAMES[way],
      ...(why.trim() !== "" && { explanation: why.trim() }),
    });
    setFlag(null);
    setGiven("");
    setWhy("");
  };
  return (
    <form className={css.form} onSubmit={submit} aria-label="Score this answer">
      <Choice
        label="Score by"
        value={way}
        onChange={(next) => setWay(next as Way)}
        options={WAYS}
      />
      <Field
        label="Name"
        placeholder={NAMES[way]}
        maxLength={200}
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      {way === "flag" ? (
        <div className={css.thumbs} role="group" aria-label="Score">
          <Button
            icon={<IconThumbUp size={15} aria-hidden />}
            aria-pressed={flag === true}
            onClick={() => setFlag(flag === true ? null : true)}
          >
            Good
          </Button>
          <Button
            icon={<IconThumbDown size={15} aria-hidden />}
            aria-pressed={flag === false}
            onClick={() => setFlag(flag === false ? null : false)}
          >
            Bad
          </Button>
        </div>
      ) : (
        <Field
          label={way === "value" ? "Number" : "Label"}
          inputMode={way === "value" ? "decimal" : "text"}
          value={given}
          problem={way === "value" && given.trim() !== "" && score === null ? "Not a number" : null}
          onChange={(event) => setGiven(event.target.value)}
        />
      )}
      <div className={css.wide}>
        <TextArea
          label="Why (optional)"
          value={why}
          onChange={(event) => setWhy(event.target.value)}
        />
      </div>
      <div className={css.send}>
        <Button type="submit" look="primary" disabled={score === null}>
          Save score
        </Button>
        {onCorrect && (
          <Button icon={<IconPencil size={15} aria-hidden />} onClick={onCorrect}>
            Correct…
          </Button>
        )}
      </div>
    </form>
  );
}

function scoreOf(way: Way, flag: boolean | null, text: string): Given | null {
  const given = text.trim();
  if (way === "flag") return flag === null ? null : { flag };
  if (given === "") return null;
  if (way === "label") return { label: given };
  const value = Number(given.replace(",", "."));
  return Number.isFinite(value) ? { value } : null;
}

type CorrectionProps = {
  initial: string;
  onCorrect: (text: string) => void;
  onCancel: () => void;
};

function CorrectionForm({ initial, onCorrect, onCancel }: CorrectionProps) {
  const [text, setText] = useState(initial);
  const isSame = text.trim() === "" || text === initial;
  return (
    <form
      className={css.correcting}
      aria-label="Correct this answer"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isSame) onCorrect(text);
      }}
    >
      <TextArea
        label="What it should have answered"
        mono
        rows={3}
        autoFocus
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <div className={css.send}>
        <Button type="submit" look="primary" disabled={isSame}>
          Save correction
        </Button>
        <Button onClick={onCancel}>Cancel</Button>
      </div>
    </form>
  );
}
