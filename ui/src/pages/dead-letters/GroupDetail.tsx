import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";

import { useCan } from "~/api/me";
import {
  Button,
  Card,
  Confirm,
  Empty,
  ErrorPanel,
  explained,
  KeyValues,
  Skeleton,
  Time,
} from "~/design";
import { count, plural } from "~/design/format";

import type { Done } from "./DeadLettersPage";
import css from "./DeadLetters.module.css";
import { LetterDetail } from "./LetterDetail";
import { LetterTable } from "./LetterTable";
import { lettersOf, settle, type Group, type Target, type Verb } from "./queries";

type Props = { group: Group; onDone: (done: Done) => void; onClose: () => void };

/** The letters of a group, the opened one, and what can be done with them. */
export function GroupDetail({ group, onDone, onClose }: Props) {
  const [search, setSearch] = useSearchParams();
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set());
  const query = useInfiniteQuery(lettersOf(group.feature, group.error));
  const letters = query.data ?? [];
  const opened = search.get("letter") ?? letters[0]?.id;
  const open = (id: string | null) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        if (id === null) next.delete("letter");
        else next.set("letter", id);
        return next;
      },
      { replace: true },
    );
  const chosen = letters.filter(({ id }) => ticked.has(id)).map(({ id }) => id);
  const settled = (done: Done) => {
    setTicked(new Set());
    open(null);
    onDone(done);
  };
  return (
    <div className={css.detail}>
      <Card
        title={
          <>
            <bdi>{group.feature}</bdi> · {plural(group.count, "letter")}
          </>
        }
        aside={
          <>
            <Actions group={group} chosen={chosen} onDone={settled} />
            <span className={css.close}>
              <Button onClick={onClose}>Back</Button>
            </span>
          </>
        }
        flush
      >
        <GroupFacts group={group} />
        {query.isPending ? (
          <div className={css.inset}>
            <Skeleton lines={4} />
          </div>
        ) : query.isError && letters.length === 0 ? (
          <ErrorPanel error={query.error} retry={() => void query.refetch()} />
        ) : letters.length === 0 ? (
          <Empty title="No letters in this group">
            They were redriven or discarded, here or elsewhere. A redriven letter waits for the
            worker; if it fails again, it appears here.
          </Empty>
        ) : (
          <LetterTable
            letters={letters}
            opened={opened}
            ticked={ticked}
            onOpen={open}
            onTick={setTicked}
            more={query.hasNextPage ? () => void query.fetchNextPage() : null}
            isLoading={query.isFetchingNextPage}
          />
        )}
      </Card>
      {opened !== undefined && letters.length > 0 && (
        <LetterDetail
          key={opened}
          id={opened}
          known={letters.find(({ id }) => id === opened)}
          actions={<Actions group={null} chosen={[opened]} onDone={settled} />}
        />
      )}
    </div>
  );
}

function GroupFacts({ group }: { group: Group }) {
  const maySeeStore = useCan("GET /api/store");
  if (group.count === 0) return null;
  return (
    <div className={css.facts}>
      <p className={css.sample}>
        <bdi>{group.error || "An error without a message"}</bdi>
      </p>
      <KeyValues
        rows={[
          [
            "Feature",
            maySeeStore ? (
              <Link
                key="feature"
                href={`/store?${new URLSearchParams({ card: `feature:${group.feature}` }).toString()}`}
              >
                {group.feature}
              </Link>
            ) : (
              group.feature
            ),
          ],
          ["Event types", <bdi key="types">{group.event_types.join(", ")}</bdi>],
          ["First failed", <Time key="first" at={group.first_failed_at} />],
          ["Last", <Time key="last" at={group.last_dead_at} />],
          ["Attempts", count(group.attempts)],
        ]}
      />
    </div>
  );
}

type ActionsProps = {
  /** All its letters are meant if none is chosen. */
  group: Group | null;
  chosen: readonly string[];
  onDone: (done: Done) => void;
};

type Look = "primary" | "danger";

const VERBS: readonly (readonly [verb: Verb, label: string, look: Look])[] = [
  ["redrive", "Redrive", "primary"],
  ["discard", "Discard", "danger"],
];

/** An action that was asked for: its letters stay the same while the dialog is open. */
type Question = { verb: Verb; look: Look; target: Target; size: number; words: string };

/** Buttons that redrive and discard, each after a question. */
export function Actions({ group, chosen, onDone }: ActionsProps) {
  const canSettle = useCan("POST /v1/dead-letters/redrive");
  const client = useQueryClient();
  const [asked, setAsked] = useState<Question | null>(null);
  const action = useMutation({
    mutationFn: async ({ verb, target }: Question): Promise<Done> => ({
      verb,
      settled: await settle(verb, target),
    }),
    onSuccess: async (done) => {
      setAsked(null);
      onDone(done);
      await client.invalidateQueries({ queryKey: ["dead-letters"] });
    },
  });
  const size = chosen.length || (group?.count ?? 0);
  if (!canSettle || (size === 0 && asked === null)) return null;
  const what = subject(group, chosen.length);
  const words = asked?.words ?? "";
  const ask = (verb: Verb, label: string, look: Look) => {
    action.reset();
    setAsked({ verb, look, size, target: targetOf(group, chosen), words: `${label} ${what}` });
  };
  return (
    <>
      {VERBS.map(([verb, label, look]) => (
        <Button key={verb} onClick={() => ask(verb, label, look)}>
          {group === null ? label : `${label} ${chosen.length > 0 ? count(size) : "all"}`}
        </Button>
      ))}
      <Confirm
        opened={asked !== null}
        title={`${words}?`}
        action={words}
        look={asked?.look}
        busy={action.isPending}
        onCancel={() => setAsked(null)}
        onConfirm={() => asked !== null && action.mutate(asked)}
      >
        {asked && <Consequences verb={asked.verb} isOne={asked.size === 1} />}
        {action.isError && <Failed error={action.error} />}
      </Confirm>
    </>
  );
}

/** Return what to settle: the chosen letters, or without any the whole group. */
function targetOf(group: Group | null, chosen: readonly string[]): Target {
  if (chosen.length > 0 || group === null) return { ids: chosen };
  return { feature: group.feature, error: group.error };
}

/** Return the letters that an action concerns, in words. */
function subject(group: Group | null, chosen: number): string {
  if (group === null) return "this letter";
  if (chosen > 0) return plural(chosen, "letter");
  return group.count === 1 ? "the letter" : `all ${plural(group.count, "letter")}`;
}

function Consequences({ verb, isOne }: { verb: Verb; isOne: boolean }) {
  if (verb === "discard") {
    return (
      <p>
        The feature will never handle {isOne ? "this event" : "these events"}. The{" "}
        {isOne ? "event stays" : "events stay"} in the log. This cannot be undone.
      </p>
    );
  }
  return (
    <p>
      {isOne ? "The event runs" : "The events run"} again, for the feature that failed and for no
      other. A letter that fails again comes back with a new id.
    </p>
  );
}

function Failed({ error }: { error: unknown }) {
  const { title, meaning } = explained(error);
  return (
    <p role="alert" className={css.failed}>
      {title}: <bdi>{meaning}</bdi>
    </p>
  );
}
