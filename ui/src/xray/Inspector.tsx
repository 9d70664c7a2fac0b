import type { ReactNode, Ref } from "react";
import { Link } from "wouter";

import { useMayOpen } from "~/app/allowed";
import { ButtonLink, Card, Id, KeyValues, Mono, StateBadge, Time, UserText } from "~/design";
import { count, duration, inline, plural } from "~/design/format";

import { historyOf, impactOf } from "./links";
import type { Cause, ItemView, Quoted, TraceView } from "./model";
import { causeWords, staleOf, valuesOf } from "./model";
import { PartDetails } from "./PartDetails";
import { kindWord } from "./lanes";
import { Reads } from "./Reads";
import { Absent } from "./Redactions";
import css from "./Inspector.module.css";

type Props = {
  view: TraceView;
  item: ItemView | undefined;
  /** The events behind the values, by place; undefined until they are known. */
  causes: ReadonlyMap<string, Cause> | undefined;
  ref?: Ref<HTMLDivElement>;
};

/** The selected item: the decision, its reason, and where its text came from. */
export function Inspector({ view, item, causes, ref }: Props) {
  if (item === undefined) return null;
  const stale = staleOf(view.trace, item);
  return (
    <div ref={ref} tabIndex={-1} className={css.inspector} aria-live="polite">
      <Card
        title={
          <>
            {kindOf(item)}
            {item.label !== kindOf(item) && (
              <>
                {" "}
                · <bdi>{item.label}</bdi>
              </>
            )}
          </>
        }
        aside={
          stale > 0 ? (
            <StateBadge state="failed">{plural(stale, "input")} not fresh</StateBadge>
          ) : undefined
        }
      >
        <KeyValues rows={[...decisionRows(view, item), ...sourceRows(view, item, causes)]} />
        {item.placed && <PartDetails key={item.place} view={view} placed={item.placed} />}
        <Links view={view} item={item} />
      </Card>
    </div>
  );
}

type Row = readonly [name: string, value: ReactNode];

/** What the item is in a message, if it is not text; otherwise the kind of its source. */
const kindOf = ({ kind, placed }: ItemView): string =>
  placed === null || placed.message.kind === "text" ? kind : kindWord(placed);

function decisionRows({ trace, absent }: TraceView, view: ItemView): Row[] {
  const { item, place } = view;
  const content = `/items/${place}/content`;
  const absence = absent(content);
  const why = item.why.replace(", because ", ": ").replace("; max_tokens", "; the budget");
  return [
    ["Decision", why],
    ["Tokens", tokensOf(trace, view)],
    ["Priority", item.required ? "required" : count(item.priority)],
    ["Section", item.section === null ? null : <UserText>{item.section}</UserText>],
    ["If too long", item.truncate ? "it may be shortened" : null],
    [
      "Text",
      absence === null ? null : (
        <Absent contextId={trace.context_id} pointer={content} absence={absence} />
      ),
    ],
  ];
}

function tokensOf(trace: TraceView["trace"], { item }: ItemView): string {
  const how = trace.exact
    ? `exact (${trace.tokenizer})`
    : `estimated with ${trace.tokenizer}, ${trace.margin_percent} % kept free`;
  const alone = `${count(item.tokens)}, ${how}`;
  if (item.decision === "truncated") return `${count(item.emitted_tokens)} of ${alone}`;
  if (item.width === null || item.width === item.tokens) return alone;
  return `${alone}; ${count(item.width)} with its separator`;
}

function sourceRows(view: TraceView, item: ItemView, causes: Props["causes"]): Row[] {
  const { trace } = view;
  if (item.quoted) return chunkRows(item.quoted);
  if (item.nested) {
    return [
      ["Context", <Link href={`/records/${item.nested.context_id}`}>{item.nested.name}</Link>],
      ["Freshness", item.nested.freshness_status],
      ["Record", <Id value={item.nested.record_hash} head={13} />],
    ];
  }
  if (item.kind !== "template") {
    const { source_ref: ref } = item.item;
    return [["Source", ref === null ? null : <UserText mono>{inline(ref)}</UserText>]];
  }
  const text = item.item.source_ref;
  const ref = `/items/${item.place}/source/ref`;
  return [
    [
      "Template",
      typeof text === "string" ? (
        <UserText mono>{text}</UserText>
      ) : (
        <Absent
          contextId={trace.context_id}
          pointer={ref}
          absence={view.absent(ref) ?? "withheld"}
        />
      ),
    ],
    ["Reads", item.item.reads.length > 0 ? <Reads view={view} item={item} /> : null],
    ["Changed by", causes && <Causes trace={trace} reads={item.item.reads} causes={causes} />],
  ];
}

function chunkRows({ search, found, rank }: Quoted): Row[] {
  const cached = search.cache_hit ? `from the cache, ${duration(search.age_ms)} old` : "new search";
  return [
    ["Document", found.document === null ? null : <UserText mono>{found.document}</UserText>],
    ["Position", found.position === null ? null : `chunk ${count(found.position)}`],
    ["Version", found.version === null ? null : count(found.version)],
    ["Indexed", found.indexed_at === null ? null : <Time at={found.indexed_at} />],
    [
      "Score",
      `${found.score === null ? "none" : shortScore(found.score)}, rank ${rank + 1} of ${search.count}`,
    ],
    ["Found by", <Mono>{search.retriever}</Mono>],
    [
      "Index",
      search.index === null ? null : (
        <>
          <Mono>{search.index}</Mono> version <Mono>{search.index_version}</Mono>
        </>
      ),
    ],
    ["Query", search.query === null ? null : <UserText>{search.query}</UserText>],
    ["Search", `${cached}, ${duration(search.latency_ms)}`],
  ];
}

const shortScore = (score: string): string =>
  Number.isFinite(Number(score)) ? String(Number(Number(score).toPrecision(4))) : score;

type CausesProps = {
  trace: TraceView["trace"];
  reads: readonly number[];
  causes: ReadonlyMap<string, Cause>;
};

/** What wrote the values of an item, each once: the latest event first. */
function Causes({ trace, reads, causes }: CausesProps) {
  const found = new Map<string, Cause>();
  for (const cause of causes.values()) {
    if (reads.includes(cause.read)) found.set(cause.cause, cause);
  }
  if (found.size === 0) return <span className={css.dim}>nothing that history still has</span>;
  const at = ({ event }: Cause) => event?.timestamp ?? "";
  const latest = [...found.values()].sort((one, two) => at(two).localeCompare(at(one)));
  return (
    <ul className={css.events}>
      {latest.slice(0, 5).map((cause) => (
        <li key={cause.cause}>
          <CauseLine cause={cause} before={Date.parse(trace.created_at)} />
        </li>
      ))}
      {latest.length > 5 && <li className={css.dim}>and {latest.length - 5} more</li>}
    </ul>
  );
}

function CauseLine({ cause, before }: { cause: Cause; before: number }) {
  const { label, detail } = causeWords(cause);
  const { event } = cause;
  if (event === null) {
    return (
      <>
        <Mono>{label}</Mono> <span className={css.dim}>{detail}</span>
      </>
    );
  }
  return (
    <>
      <Mono>{label}</Mono> <Id value={event.event_id} head={4} tail={4} />{" "}
      <span className={css.age}>
        {duration(Math.max(0, before - Date.parse(event.timestamp)))} before
      </span>
    </>
  );
}

function Links({ view, item }: { view: TraceView; item: ItemView }) {
  const mayOpen = useMayOpen();
  const links = linksOf(view, item).filter(
    (pair): pair is [string, string] => pair[1] !== null && mayOpen(pair[1]),
  );
  if (links.length === 0) return null;
  return (
    <div className={css.links}>
      {links.map(([label, href]) => (
        <ButtonLink key={label} href={href}>
          {label}
        </ButtonLink>
      ))}
    </div>
  );
}

function linksOf(
  { trace }: TraceView,
  { item, quoted, nested }: ItemView,
): [string, string | null][] {
  if (nested) return [["Open this context", `/records/${nested.context_id}`]];
  if (quoted) {
    const { id: chunk, document } = quoted.found;
    return [["Who else saw it", impactOf({ chunk, document, index: quoted.search.index })]];
  }
  // A value that was computed has no history, but those it was computed from have one.
  const values = item.reads.flatMap((read) => valuesOf(trace, read)).map(({ value }) => value);
  const stored = values.find(({ written_at: at }) => at !== null) ?? values[0];
  if (stored === undefined) return [];
  const history = stored.written_at === null ? null : historyOf(stored, trace.created_at);
  return [
    ["History", history],
    ["Who else saw it", impactOf(stored)],
  ];
}
