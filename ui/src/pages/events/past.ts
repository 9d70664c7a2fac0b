import { useInfiniteQuery } from "@tanstack/react-query";

import { api, body, type Schema } from "~/api/client";

import type { Shown } from "./tail";

const PAGE = 200;

export const RANGES = {
  "15m": ["Last 15 minutes", 15 * 60_000],
  "1h": ["Last hour", 3_600_000],
  "24h": ["Last 24 hours", 86_400_000],
  "7d": ["Last 7 days", 7 * 86_400_000],
  all: ["All time", null],
} as const;
export type Range = keyof typeof RANGES;

export type PastFilter = {
  event_type?: string;
  entity_id?: string;
  event_id?: string;
  since?: string;
  before?: string;
};

/** Past events, the newest first, a page at a time. */
export function usePastEvents(filter: PastFilter, isOn: boolean) {
  return useInfiniteQuery({
    queryKey: ["events", filter],
    enabled: isOn,
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam, signal }) => {
      const query = { ...filter, ...(pageParam ? { before: pageParam } : {}), limit: PAGE };
      return body(await api.GET("/v1/events", { params: { query }, signal })).events;
    },
    getNextPageParam: nextBefore,
    select: ({ pages }) => [
      ...new Map(
        pages
          .flat()
          .map(shown)
          .map((each) => [each.key, each]),
      ).values(),
    ],
  });
}

/** Return the time before which the next page ends; events of the same moment come twice. */
export function nextBefore(page: readonly Schema<"LoggedEvent">[]): string | undefined {
  const [first, last] = [page[0]?.event.timestamp, page.at(-1)?.event.timestamp];
  if (page.length < PAGE || first === undefined || last === undefined) return undefined;
  const after = new Date(Date.parse(last) + 1).toISOString();
  // A page of one moment would be asked for again and again.
  return Date.parse(first) <= Date.parse(last) + 1 ? last : after;
}

function shown(logged: Schema<"LoggedEvent">): Shown {
  return { ...logged, key: `${logged.event.entity_id}\0${logged.event.event_id ?? ""}` };
}

/** Return the beginning of a range, rounded so that the same view asks the same question. */
export function beginning(range: Range, now: number): string | undefined {
  const length = RANGES[range][1];
  return length === null ? undefined : new Date(now - length).toISOString();
}
