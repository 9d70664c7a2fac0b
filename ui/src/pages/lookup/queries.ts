import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";

import { api, body, type Schema } from "~/api/client";

import { knownAt, type Step } from "./steps";

export type EntityValue = Schema<"EntityValue">;

const PAGE = 200;

/** All values of one entity. */
export function entityValues(entity: string, id: string) {
  return queryOptions({
    queryKey: ["entity", entity, id],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/v1/entities/{entity}/{entity_id}", {
          params: { path: { entity, entity_id: id } },
          signal,
        }),
      ),
    enabled: entity !== "" && id !== "",
    refetchInterval: 10_000,
  });
}

/** One value over time from a moment on, newest first, with the events behind its steps. */
export function history(feature: string, id: string, start: number | null) {
  return infiniteQueryOptions({
    queryKey: ["history", feature, id, start],
    queryFn: async ({ signal, pageParam }) =>
      body(
        await api.GET("/v1/features/{name}/history", {
          params: {
            path: { name: feature },
            query: {
              entity_id: id,
              limit: PAGE,
              events: true,
              ...(start === null ? {} : { start: new Date(start).toISOString() }),
              ...(pageParam === null ? {} : { end: pageParam }),
            },
          },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_end,
  });
}

/** The windows of the family of a feature for one entity, with their tiles. */
export function familyWindows(feature: string, id: string) {
  return queryOptions({
    queryKey: ["windows", feature, id],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/v1/features/{name}/windows", {
          params: { path: { name: feature }, query: { entity_id: id } },
          signal,
        }),
      ),
    refetchInterval: 10_000,
  });
}

/** The value that counted at the beginning of a range. */
export function valueBefore(feature: string, id: string, moment: number | null) {
  return queryOptions({
    queryKey: ["value before", feature, id, moment],
    queryFn: async ({ signal }): Promise<Step | null> => {
      const end = new Date(moment ?? 0).toISOString();
      const found = body(
        await api.GET("/v1/features/{name}/history", {
          params: { path: { name: feature }, query: { entity_id: id, limit: 1, end } },
          signal,
        }),
      );
      return found.values[0] ?? null;
    },
    enabled: moment !== null,
  });
}

/** The value that was known at a moment. */
export function valueAt(feature: string, id: string, moment: number | null) {
  return queryOptions({
    queryKey: ["value at", feature, id, moment],
    queryFn: async ({ signal }): Promise<Step | null> => {
      const at = moment ?? 0;
      const end = new Date(at + 1).toISOString(); // the end of a range is not part of it
      const query = { entity_id: id, limit: PAGE, end };
      const params = { path: { name: feature }, query };
      const found = body(await api.GET("/v1/features/{name}/history", { params, signal }));
      return knownAt(found.values, at);
    },
    enabled: moment !== null,
    staleTime: Infinity,
  });
}
