import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";

import { api, body, type Schema } from "~/api/client";

import { hasProvenance, queryOf, type Filters } from "./filters";

export type Summary = Schema<"RecordSummary">;
export type Histogram = Schema<"ContextHistogram">;

const PAGE = 250;
const BUCKETS = 90;

/** The contexts of a query, page by page. Rows stay while another filter is read. */
export function useRecords(filters: Filters, isWanted = true) {
  return useInfiniteQuery({
    queryKey: ["contexts", filters],
    queryFn: async ({ pageParam, signal }) => {
      const query = queryOf(filters, Date.now());
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
export function useHistogram(filters: Filters, isWanted = true) {
  return useQuery({
    queryKey: ["contexts over time", filters],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/v1/contexts/by-time", {
          params: { query: { ...queryOf(filters, Date.now()), buckets: BUCKETS } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    enabled: isWanted,
  });
}
