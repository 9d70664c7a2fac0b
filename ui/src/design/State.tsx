import {
  IconAlertTriangleFilled,
  IconCircleCheckFilled,
  IconCircleDashed,
  IconCircleXFilled,
} from "@tabler/icons-react";
import type { ReactNode } from "react";

import css from "./State.module.css";

/** The four states of the UI; each has a colour and an icon, and is always shown with a word. */
export type State = "fresh" | "ageing" | "failed" | "unknown";

const ICONS = {
  fresh: IconCircleCheckFilled,
  ageing: IconAlertTriangleFilled,
  failed: IconCircleXFilled,
  unknown: IconCircleDashed,
} as const;

export function StateIcon({ state, size = 14 }: { state: State; size?: number }) {
  const Icon = ICONS[state];
  return <Icon size={size} className={css.icon} data-state={state} aria-hidden />;
}

/** A state in a pill: icon and word. */
export function StateBadge({ state, children }: { state: State; children: ReactNode }) {
  return (
    <span className={css.badge} data-state={state}>
      <StateIcon state={state} size={13} />
      {children}
    </span>
  );
}

/** A word in the colour of its state, with its icon. */
export function StateWord({ state, children }: { state: State; children: ReactNode }) {
  return (
    <span className={css.word} data-state={state}>
      <StateIcon state={state} size={13} />
      {children}
    </span>
  );
}

/** A sentence in the colour of its state, broken into lines where it must be. */
export function StateText({ state, children }: { state: State; children: ReactNode }) {
  return (
    <span className={css.text} data-state={state}>
      <StateIcon state={state} size={13} /> {children}
    </span>
  );
}

/** A neutral label, for example an environment or a kind. */
export function Tag({ children }: { children: ReactNode }) {
  return <span className={css.tag}>{children}</span>;
}

/** Return the state of an age: ageing from 70 % of its limit, failed beyond the limit. */
export function stateOfAge(
  ageMs: number | null | undefined,
  slaMs: number | null | undefined,
): State {
  if (ageMs === null || ageMs === undefined) return "unknown";
  if (slaMs === null || slaMs === undefined) return "fresh";
  if (ageMs > slaMs) return "failed";
  return ageMs > 0.7 * slaMs ? "ageing" : "fresh";
}
