import { IconRobot, IconSettings2, IconTool, IconTools, IconUser } from "@tabler/icons-react";
import type { ReactNode } from "react";

import { sourceColor } from "~/design";

import css from "./messages.module.css";
import type { Role } from "./parts";

/** A lane of the request: a role, or the tools, which stand before all messages. */
export type Lane = Role | "tools";

const ICONS = {
  system: IconSettings2,
  user: IconUser,
  assistant: IconRobot,
  tool: IconTool,
  tools: IconTools,
} as const;

/** The heading of one message: who speaks, and what belongs to the whole of it. */
export function RoleHead({ lane, children }: { lane: Lane; children?: ReactNode }) {
  const Icon = ICONS[lane];
  return (
    <div className={css.head}>
      <Icon size={14} color={sourceColor({ kind: lane })} aria-hidden />
      <strong>{lane}</strong>
      {children}
    </div>
  );
}
