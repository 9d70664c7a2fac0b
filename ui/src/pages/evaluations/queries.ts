import { keepPreviousData, queryOptions, useInfiniteQuery } from "@tanstack/react-query";

import { api, body, type Schema } from "~/api/client";

export type Cohort = Schema<"ListedCohort">;
export type Report = Schema<"EvaluationReport">;
export type Evaluated = Schema<"EvaluatedContext">;

const PAGE = 100;
/** How often a run that goes on is read again. */
export const POLL_MS = 1_000;

/** All cohorts and their runs; read again while one of them goes on. */
export const evaluations = queryOptions({
  queryKey: ["evaluations"],
  queryFn: async ({ signal }) => body(await api.GET("/v1/evaluations", { signal })),
  refetchInterval: ({ state }) =>
    state.data?.cohorts.some(({ runs }) => runs.some(({ finished_at }) => !finished_at))
      ? POLL_MS
      : false,
});

/** What a run found, or has found until now. */
export const reportOf = (cohort: string, run: string) =>
  queryOptions({
    queryKey: ["evaluation", cohort, run],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/v1/evaluations/{cohort}", {
          params: { path: { cohort }, query: { run_id: run } },
          signal,
        }),
      ),
    refetchInterval: ({ state }) =>
      state.data !== undefined && isRunning(state.data) ? POLL_MS : false,
  });

/** Return whether a run goes on, or was interrupted. */
export function isRunning({ run }: Report): boolean {
  return !run.finished_at;
}

export type Filters = {
  status: Evaluated["status"];
  kind?: Evaluated["kinds"][number];
  cause?: string;
  fidelity?: Evaluated["fidelity"];
};

/** The contexts of a run that match, page by page; `done` is how many of them there are to read. */
export function useContexts(cohort: string, run: string, filters: Filters, done: number) {
  return useInfiniteQuery({
    queryKey: ["evaluated contexts", cohort, run, filters, done],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/v1/evaluations/{cohort}/{run_id}/contexts", {
          params: {
            path: { cohort, run_id: run },
            query: { ...filters, limit: PAGE, ...(pageParam && { cursor: pageParam }) },
          },
          signal,
        }),
      ),
    initialPageParam: "",
    getNextPageParam: ({ next_cursor }) => next_cursor,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });
}

/** A context of a run, and both sides of it. */
export const comparedContext = (cohort: string, run: string, id: string) =>
  queryOptions({
    queryKey: ["evaluated context", cohort, run, id],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/v1/evaluations/{cohort}/{run_id}/contexts/{id}", {
          params: { path: { cohort, run_id: run, id } },
          signal,
        }),
      ),
    staleTime: 60_000,
  });
