import { Time, UserText } from "~/design";

import { absenceText } from "./absence";
import type { Absence } from "./model";
import { together, useRedactions, type Redaction } from "./notes";
import css from "./Proof.module.css";

/** What was erased from a record: where, when, by whom and why. */
export function Redactions({ contextId }: { contextId: string }) {
  const groups = together(useRedactions(contextId));
  if (groups.length === 0) return null;
  return (
    <ul className={css.redactions} aria-label="Redactions">
      {groups.map((group, index) => (
        <li key={index}>
          {group[0] && <Note redaction={group[0]} />}
          <span className={css.places}>
            <UserText mono>{group.map(({ pointer }) => pointer).join(", ")}</UserText>
          </span>
        </li>
      ))}
    </ul>
  );
}

/** Why a value is not shown, with the note of its redaction. */
export function Absent(props: { contextId: string; pointer: string; absence: Absence }) {
  const { contextId, pointer, absence } = props;
  const redaction = useRedactions(contextId).find((each) => each.pointer === pointer);
  return (
    <>
      <em>{absenceText(absence)}</em>
      {redaction && (
        <div>
          <Note redaction={redaction} />
        </div>
      )}
    </>
  );
}

function Note({ redaction: { redacted_at: at, by, reason } }: { redaction: Redaction }) {
  return (
    <>
      Redacted <Time at={at} show="exact" />
      {by !== null && (
        <>
          {" "}
          by <UserText>{by}</UserText>
        </>
      )}
      : <UserText>{reason}</UserText>
    </>
  );
}
