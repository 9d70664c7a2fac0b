import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";

import { api, body, type Schema } from "~/api/client";

import { hasProvenance, type ListQuery } from "./filters";

export type Summary = Schema<"RecordSummary">;
export type Histogram = Schema<"ContextHistogram">;

const PAGE = 250;
const BUCKETS = 90;

/** The contexts of a query, page by page. Rows stay while another filter is read. */
export function useRecords(query: ListQuery, isWanted = true) {
  return useInfiniteQuery({
    queryKey: ["contexts", query],
    queryFn: async ({ pageParam, signal }) => {
      const params = { query: { ...query, limit: PAGE, ...(pageParam && { cursor: pageParam }) } };
      return hasProvenance(query)
        ? body(await api.GET("/v1/contexts/by-provenance", { params, signal }))
        : body(await api.GET("/v1/contexts", { params, signal }));
    },
    initialPageParam: "",
    getNextPageParam: ({ next_cursor }) => next_cursor,
    placeholderData: keepPreviousData,
    // A refresh would read every page again; the button does it.
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    enabled: isWanted,
  });
}

/** The same contexts, counted over time. */
export function useHistogram(query: ListQuery, isWanted = true) {
  return useQuery({
    queryKey: ["contexts over time", query],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/v1/contexts/by-time", {
          params: { query: { ...query, buckets: BUCKETS } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    enabled: isWanted,
  });
}
