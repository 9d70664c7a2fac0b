import type { KeyboardEvent } from "react";

import { Amount, Time, UserText } from "~/design";
import { count } from "~/design/format";

import css from "./DeadLetters.module.css";
import type { Group } from "./queries";

const MOVES: Readonly<Record<string, number>> = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };

type Props = {
  groups: readonly Group[];
  selected: Group | undefined;
  onSelect: (group: Group) => void;
};

export function GroupList({ groups, selected, onSelect }: Props) {
  const at = selected === undefined ? -1 : groups.indexOf(selected);
  const move = (event: KeyboardEvent<HTMLUListElement>) => {
    const by = MOVES[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = Math.max(0, Math.min(groups.length - 1, at + by));
    const next = groups[index];
    if (next === undefined) return;
    event.preventDefault();
    onSelect(next);
    event.currentTarget.querySelectorAll("button")[index]?.focus();
  };
  return (
    <ul className={css.groups} aria-label="Groups of dead letters" onKeyDown={move}>
      {groups.map((group) => (
        <li key={`${group.feature}\n${group.error}`}>
          <button
            type="button"
            aria-current={group === selected || undefined}
            onClick={() => onSelect(group)}
          >
            <span className={css.feature}>
              <UserText>{group.feature}</UserText>
            </span>
            <span className={css.count}>
              <Amount>{count(group.count)}</Amount>
            </span>
            <span className={css.error}>
              <bdi>{group.error || "An error without a message"}</bdi>
            </span>
            <span className={css.when}>
              <Time at={group.last_dead_at} />
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
