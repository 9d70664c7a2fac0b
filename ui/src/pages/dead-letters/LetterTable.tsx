import type { KeyboardEvent } from "react";

import { Button, Tag, Time, UserText } from "~/design";
import { count } from "~/design/format";

import css from "./DeadLetters.module.css";
import type { Letter } from "./queries";

type Props = {
  letters: readonly Letter[];
  opened: string | undefined;
  ticked: ReadonlySet<string>;
  onOpen: (id: string) => void;
  onTick: (ticked: ReadonlySet<string>) => void;
  more: (() => void) | null;
  isLoading: boolean;
};

const MOVES: Readonly<Record<string, number>> = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };

/** The letters of a group: open one, tick many; arrow keys move, Space ticks. */
export function LetterTable(props: Props) {
  const { letters, opened, ticked, onOpen, onTick, more, isLoading } = props;
  const toggle = (id: string) => {
    const next = new Set(ticked);
    if (!next.delete(id)) next.add(id);
    onTick(next);
  };
  const onKey = (event: KeyboardEvent<HTMLTableRowElement>, index: number) => {
    const letter = letters[index];
    if (event.target !== event.currentTarget || letter === undefined) return;
    if (event.key === "Enter") onOpen(letter.id);
    else if (event.key === " ") {
      event.preventDefault();
      toggle(letter.id);
    }
    const by = MOVES[event.key];
    const next = by === undefined ? undefined : letters[index + by];
    if (by === undefined || next === undefined) return;
    event.preventDefault();
    onOpen(next.id);
    const rows = event.currentTarget.parentElement?.children;
    (rows?.[index + by] as HTMLElement | undefined)?.focus();
  };
  const all = letters.every(({ id }) => ticked.has(id));
  return (
    <div className={css.letters}>
      <table aria-label="Dead letters of the group">
        <thead>
          <tr>
            <th scope="col">
              <input
                type="checkbox"
                aria-label="Tick all letters that are listed"
                checked={all}
                onChange={() => onTick(new Set(all ? [] : letters.map(({ id }) => id)))}
              />
            </th>
            <th scope="col">Entity id</th>
            <th scope="col" className={css.wide}>
              Event
            </th>
            <th scope="col" className={css.wide}>
              Error
            </th>
            <th scope="col" className={css.number}>
              Attempts
            </th>
            <th scope="col" className={css.number}>
              Died
            </th>
          </tr>
        </thead>
        <tbody>
          {letters.map((letter, index) => (
            <tr
              key={letter.id}
              tabIndex={0}
              aria-selected={letter.id === opened}
              onClick={() => onOpen(letter.id)}
              onKeyDown={(event) => onKey(event, index)}
            >
              <td onClick={(event) => event.stopPropagation()}>
                <input
                  type="checkbox"
                  aria-label={`Tick letter ${letter.id}`}
                  checked={ticked.has(letter.id)}
                  onChange={() => toggle(letter.id)}
                />
              </td>
              <td className={css.cut}>
                <UserText>{letter.event.entity_id}</UserText>
              </td>
              <td className={`${css.wide} ${css.cut}`}>
                <Tag>
                  <bdi>{letter.event.event_type}</bdi>
                </Tag>
              </td>
              <td className={`${css.wide} ${css.cut} ${css.mono}`}>
                <bdi>{letter.error}</bdi>
              </td>
              <td className={css.number}>{count(letter.attempts)}</td>
              <td className={css.number}>
                <Time at={letter.dead_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {more !== null && (
        <div className={css.more}>
          <Button onClick={more} busy={isLoading}>
            Show more
          </Button>
        </div>
      )}
    </div>
  );
}
