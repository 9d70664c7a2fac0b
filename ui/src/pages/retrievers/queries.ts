import { queryOptions } from "@tanstack/react-query";

import { api, body, type Schema } from "~/api/client";

export const indexes = queryOptions({
  queryKey: ["indexes"],
  queryFn: async ({ signal }) => body(await api.GET("/v1/indexes", { signal })).indexes,
  refetchInterval: 10_000,
});

/** The results of a retriever; searched again only when it is asked for. */
export function retrieved(name: string, params: Readonly<Record<string, unknown>> | null) {
  return queryOptions({
    queryKey: ["retrieved", name, params],
    queryFn: async ({ signal }) =>
      body(
        await api.POST("/v1/retrievers/{name}", {
          params: { path: { name } },
          body: { params: params as Record<string, never> },
          signal,
        }),
      ),
    enabled: params !== null,
    staleTime: Infinity,
    retry: false,
  });
}

/** A search of an index; what it leaves out has the server's default. */
export type Search = Required<Pick<Schema<"SearchIndexBody">, "query" | "mode">> & {
  filters?: Readonly<Record<string, unknown>>;
};

/** The chunks of an index that match a query. */
export function searched(index: string, search: Search | null) {
  return queryOptions({
    queryKey: ["searched", index, search],
    queryFn: async ({ signal }) =>
      body(
        await api.POST("/v1/search/{index}", {
          params: { path: { index } },
          body: search as Schema<"SearchIndexBody">,
          signal,
        }),
      ),
    enabled: search !== null,
    staleTime: Infinity,
    retry: false,
  });
}
