import { IconX } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";

import { Card, Id, IconButton, StateWord } from "~/design";
import { plural } from "~/design/format";

import type { Done } from "./DeadLettersPage";
import css from "./DeadLetters.module.css";
import { returned, summary } from "./outcomes";
import { newestLetters } from "./queries";

const MOST_LISTED = 200;
const WORDS = {
  redriven: ["unknown", "Published again: it comes back here if it fails"],
  failed: ["failed", "Failed again"],
  discarded: ["fresh", "Discarded"],
  gone: ["unknown", "Gone: another call was faster"],
} as const;

/** What happened to each letter. */
export function Results({ done, onClose }: { done: Done; onClose: () => void }) {
  const { verb, settled } = done;
  const more = settled.length - MOST_LISTED;
  const newest = useQuery({ ...newestLetters, enabled: verb === "redrive" });
  const back = returned(newest.data ?? []);
  const failed = settled.filter(({ id }) => back.has(id)).length;
  return (
    <div className={css.results} role="status">
      <Card
        title={summary(verb, settled, failed)}
        aside={
          <IconButton label="Close the results" onClick={onClose}>
            <IconX size={15} />
          </IconButton>
        }
        flush
      >
        <ul aria-label="Results">
          {settled.slice(0, MOST_LISTED).map(({ id, outcome }) => {
            const [state, word] = WORDS[back.has(id) ? "failed" : outcome];
            return (
              <li key={id}>
                <Id value={id} head={18} />
                <StateWord state={state}>{word}</StateWord>
              </li>
            );
          })}
          {more > 0 && <li>and {plural(more, "letter")} more</li>}
        </ul>
      </Card>
    </div>
  );
}
