const REDRIVE = /^redrive:([^:]*)(?::(.*))?$/su;

/** Return the dead letter and, if it is known, the original event of the event id of a redrive. */
export function redriveOf(eventId: string): { letter: string; event: string | null } | null {
  const [, letter, event] = REDRIVE.exec(eventId) ?? [];
  return letter === undefined ? null : { letter, event: event ?? null };
}
