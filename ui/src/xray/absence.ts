import type { Absence } from "./model";

/** Say plainly why a value is not shown. */
export function absenceText(absence: Absence): string {
  return absence === "redacted"
    ? "redacted: erased from the record, the hash still holds"
    : "withheld: this copy of the record holds only its hash";
}
