import { StateBadge } from "~/design";

import { useKeys } from "./keys";
import { standingOf } from "./standing";
import type { Answer } from "./verification";

/** The result of the proof in a few words; green only if a signature was checked. */
export function ProofBadge({ answer }: { answer: Answer | null }) {
  const keys = useKeys();
  if (answer === null) return <StateBadge state="unknown">verifying</StateBadge>;
  if ("problem" in answer) return <StateBadge state="unknown">not checked</StateBadge>;
  const { state, badge } = standingOf(answer.report, keys);
  return <StateBadge state={state}>{badge}</StateBadge>;
}
