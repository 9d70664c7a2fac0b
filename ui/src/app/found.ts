import type { Schema } from "~/api/client";

export type Found = Schema<"Found">;

/** Something to go to: a page, or a thing that was found. */
export type Target = {
  /** Its address, which is also its key. */
  href: string;
  kind: Found["kind"] | "page";
  name: string;
  /** What it is or belongs to. */
  detail: string;
};

/** Titles of the groups, in their order. */
export const GROUPS: readonly (readonly [title: string, kinds: readonly Target["kind"][]])[] = [
  ["Records", ["record"]],
  ["Entities", ["entity_id", "entity"]],
  ["Features", ["feature"]],
  ["Contexts", ["context"]],
  ["Retrievers and indexes", ["retriever", "index"]],
  ["Documents", ["document"]],
  ["Event types and sources", ["event", "source"]],
  ["Pages", ["page"]],
];

/** Return where something that was found is shown. */
export function targetOf(found: Found): Target {
  const { kind, name } = found;
  return { kind, name, href: hrefOf(found), detail: detailOf(found) };
}

function hrefOf({ kind, name, entity, index }: Found): string {
  const query = (values: Record<string, string | null>) =>
    new URLSearchParams(
      Object.entries(values).flatMap(([key, value]) => (value === null ? [] : [[key, value]])),
    ).toString();
  switch (kind) {
    case "record":
      return `/records/${encodeURIComponent(name)}`;
    case "entity_id":
      return `/lookup?${query({ entity, id: name })}`;
    case "document":
      return `/impact?${query({ document: name, index })}`;
    default:
      return `/store?${query({ card: `${kind}:${name}` })}`;
  }
}

function detailOf({ kind, description, entity, index, context }: Found): string {
  switch (kind) {
    case "record":
      return context ?? "";
    case "entity_id":
      return entity ?? "";
    case "document":
      return index === null ? "" : `in ${index}`;
    case "feature":
      return [entity, description].filter(Boolean).join(" · ");
    default:
      return description;
  }
}

/** Return the targets of each group that has any, the group of the best match first. */
export function grouped(targets: readonly Target[]): (readonly [string, readonly Target[]])[] {
  const found = GROUPS.map(
    ([title, kinds]) => [title, targets.filter(({ kind }) => kinds.includes(kind))] as const,
  ).filter(([, each]) => each.length > 0);
  const best = (group: readonly Target[]) =>
    Math.min(...group.map((target) => targets.indexOf(target)));
  return found.sort(([, one], [, two]) => best(one) - best(two));
}

const STORAGE = "headwater.recent";
const MOST = 6;

/** Return what was opened last in this tab, the latest first. */
export function recent(): Target[] {
  try {
    return JSON.parse(sessionStorage.getItem(STORAGE) ?? "[]") as Target[];
  } catch {
    return [];
  }
}

export function remember(target: Target): void {
  const others = recent().filter(({ href }) => href !== target.href);
  sessionStorage.setItem(STORAGE, JSON.stringify([target, ...others].slice(0, MOST)));
}
