import { queryOptions, QueryCache, QueryClient, type Query } from "@tanstack/react-query";

import { api, body } from "./client";
import { ProblemError, UnreachableError } from "./problems";
import { reportReachable } from "./reachability";

/** Retry what may pass: a server that restarts or is busy, but no refusal. */
export function mayPass(error: unknown): boolean {
  if (error instanceof UnreachableError) return true;
  return error instanceof ProblemError && [429, 502, 503, 504].includes(error.status);
}

export function makeQueryClient(): QueryClient {
  const answered = () => {
    // What failed while the server was away is read again when it is back.
    if (reportReachable(true)) void client.refetchQueries({ type: "active", predicate: isUnread });
  };
  const failed = (error: Error, { queryKey }: Query<unknown, unknown>) => {
    if (error instanceof UnreachableError) {
      reportReachable(false);
      return;
    }
    answered();
    // A key that was revoked is asked for again; a refused one is known to the shell already.
    const isRefused = error instanceof ProblemError && error.status === 401;
    if (isRefused && queryKey[0] !== me.queryKey[0]) void client.invalidateQueries(me);
  };
  const client = new QueryClient({
    queryCache: new QueryCache({ onError: failed, onSuccess: answered }),
    defaultOptions: {
      queries: {
        staleTime: 5_000,
        // The last known data stays on the page while the server is away.
        gcTime: 30 * 60_000,
        retry: (count, error) => count < 2 && mayPass(error),
        networkMode: "always",
      },
      mutations: { networkMode: "always" },
    },
  });
  return client;
}

function isUnread({ state }: Query): boolean {
  return state.error instanceof UnreachableError;
}

/** Who the key belongs to and what it may do. */
export const me = queryOptions({
  queryKey: ["me"],
  queryFn: async ({ signal }) => body(await api.GET("/v1/me", { signal })),
  staleTime: 60_000,
});

/** All declarations and their graph; they change only with a new release of the features file. */
export const declarations = queryOptions({
  queryKey: ["declarations"],
  queryFn: async ({ signal }) => body(await api.GET("/api/store", { signal })),
  staleTime: 60_000,
});

/** How the store is, and what to look at first; the server reads it at most once a second. */
export const overview = queryOptions({
  queryKey: ["overview"],
  queryFn: async ({ signal }) => body(await api.GET("/v1/overview", { signal })),
  refetchInterval: 5_000,
});

/** What a recorded context was made of, and why. */
export const explained = (id: string) =>
  queryOptions({
    queryKey: ["explain", id],
    queryFn: async ({ signal }) =>
      body(await api.GET("/context/{id}/explain", { params: { path: { id } }, signal })),
    staleTime: 60_000,
  });
