import {
  IconBolt,
  IconBraces,
  IconChartHistogram,
  IconClockPlay,
  IconDatabase,
  IconFileSearch,
  IconId,
  IconMathFunction,
  IconTemplate,
  IconTextCaption,
  IconVersions,
  type Icon,
} from "@tabler/icons-react";

import { plural } from "~/design/format";

import type { Item, Kind } from "./model";

const ICONS: Record<Kind, Icon> = {
  entity: IconId,
  feature: IconBraces,
  index: IconVersions,
  retriever: IconFileSearch,
  context: IconTextCaption,
  event: IconBolt,
  source: IconDatabase,
};

const MODES: Record<string, readonly [word: string, icon: Icon]> = {
  triggered: ["triggered", IconBraces],
  scheduled: ["scheduled", IconClockPlay],
  on_demand: ["on demand", IconMathFunction],
  template: ["template", IconTemplate],
  window: ["window", IconChartHistogram],
  stored: ["stored", IconDatabase],
};

export const KIND_WORDS: readonly (readonly [Kind, one: string, many: string])[] = [
  ["entity", "entity", "Entities"],
  ["feature", "feature", "Features"],
  ["retriever", "retriever", "Retrievers"],
  ["index", "index", "Indexes"],
  ["context", "context", "Contexts"],
  ["event", "event type", "Event types"],
  ["source", "source", "Sources"],
];

export function KindIcon({
  kind,
  mode,
  size = 15,
}: Pick<Item, "kind" | "mode"> & { size?: number }) {
  const Icon = MODES[mode ?? ""]?.[1] ?? ICONS[kind];
  return <Icon size={size} stroke={1.7} aria-hidden />;
}

/** Return what something is, in words: `triggered · User · EUR`, `12 windows · User`. */
export function wordsOf({ kind, mode, entity, members, unit }: Item): string {
  if (kind !== "feature") return kindWord(kind);
  const word = members > 0 ? plural(members, "window") : modeWord(mode);
  return [word, entity, unit].filter(Boolean).join(" · ");
}

export function kindWord(kind: Kind): string {
  return KIND_WORDS.find(([each]) => each === kind)?.[1] ?? kind;
}

export function modeWord(mode: string | null): string {
  return MODES[mode ?? ""]?.[0] ?? mode ?? "";
}
