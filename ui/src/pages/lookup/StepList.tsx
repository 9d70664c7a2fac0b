import { IconArrowDown, IconArrowUp } from "@tabler/icons-react";
import { Link } from "wouter";

import { useCan } from "~/api/me";
import { DataTable, Dim, Id, Tag, Time, UserText, type Column } from "~/design";

import { keyedText } from "~/windows";
import { eventOf } from "~/xray/links";

import css from "./Lookup.module.css";
import { brief, causeWords, eventId, stepKey, type Segment } from "./steps";

type Props = {
  segments: readonly Segment[];
  /** Whether values are objects by key. */
  isKeyed: boolean;
  selected: number;
  /** The key of the step that was known when a record was made. */
  recorded: string | null;
  onSelect: (index: number) => void;
};

/** The steps of a value, newest first, and what caused each of them. */
export function StepList({ segments, isKeyed, selected, recorded, onSelect }: Props) {
  const mayReadEvents = useCan("GET /v1/events");
  const columns: Column<Segment>[] = [
    {
      head: "As of",
      cell: ({ step }) => (
        <>
          <Time at={step.as_of} show="exact" />{" "}
          {stepKey(step) === recorded && <Tag>at the time of the record</Tag>}
        </>
      ),
    },
    {
      head: "Value",
      cell: ({ step, change }) => (
        <span className={css.short}>
          {step.value === null ? (
            <Dim>null</Dim>
          ) : (
            <UserText mono>{brief(isKeyed ? keyedText(step.value) : step.value)}</UserText>
          )}
          {change !== null && change !== 0 && <Change by={change} />}
        </span>
      ),
    },
    {
      head: "Caused by",
      cell: ({ step }) => {
        const id = eventId(step);
        const words = causeWords(step);
        return (
          <span className={css.cause}>
            {id !== null && mayReadEvents ? (
              <Link href={eventOf(id)} onClick={(event) => event.stopPropagation()}>
                <UserText>{words}</UserText>
              </Link>
            ) : (
              <UserText>{words}</UserText>
            )}
            {id !== null && <Id value={id} />}
          </span>
        );
      },
    },
  ];
  const rows = [...segments].reverse();
  const chosen = segments[selected];
  return (
    <div className={css.steps}>
      <DataTable
        label="Steps of the value, newest first"
        columns={columns}
        rows={rows}
        rowKey={({ step }) => stepKey(step)}
        onOpen={(row) => onSelect(segments.indexOf(row))}
        isSelected={(row) => row === chosen}
      />
    </div>
  );
}

function Change({ by }: { by: number }) {
  const Arrow = by > 0 ? IconArrowUp : IconArrowDown;
  return (
    <span className={css.change}>
      <Arrow size={12} aria-label={by > 0 ? "up by" : "down by"} />
      {Math.abs(by)}
    </span>
  );
}
