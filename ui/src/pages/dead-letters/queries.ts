import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";

import { api, body, type Schema } from "~/api/client";

export type Letter = Schema<"DeadLetter">;
export type Group = Schema<"LetterGroup">;
export type Settled = Schema<"SettledLetter">;
export type Verb = "redrive" | "discard";

/** What to settle: some letters, or all of a group. */
export type Target = { ids: readonly string[] } | { feature: string; error: string };

const PAGE = 100;
const REFRESH_MS = 5_000;

export const letterGroups = queryOptions({
  queryKey: ["dead-letters", "groups"],
  queryFn: async ({ signal }) => body(await api.GET("/v1/dead-letters/groups", { signal })),
  refetchInterval: REFRESH_MS,
});

/** The letters of a group, the newest first. */
export function lettersOf(feature: string, error: string) {
  return infiniteQueryOptions({
    queryKey: ["dead-letters", "list", feature, error],
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam, signal }) => {
      const query = { feature, error, newest_first: true, limit: PAGE, after: pageParam };
      return body(await api.GET("/v1/dead-letters", { params: { query }, signal })).dead_letters;
    },
    getNextPageParam: (page: readonly Letter[]) =>
      page.length < PAGE ? undefined : page.at(-1)?.id,
    select: ({ pages }) => pages.flat(),
  });
}

export function letter(id: string) {
  return queryOptions({
    queryKey: ["dead-letter", id],
    // A letter does not change; whether it is still there is seen in the list.
    staleTime: Infinity,
    queryFn: async ({ signal }) =>
      body(await api.GET("/v1/dead-letters/{id}", { params: { path: { id } }, signal })),
  });
}

/** Redrive or discard; letters that another call was faster with are `gone`. */
export async function settle(verb: Verb, target: Target): Promise<readonly Settled[]> {
  const selection = "ids" in target ? { ids: [...target.ids], partial: true } : target;
  const options = { body: selection as Schema<"DeadLetterSelection"> };
  const answer =
    verb === "redrive"
      ? await api.POST("/v1/dead-letters/redrive", options)
      : await api.POST("/v1/dead-letters/discard", options);
  return body(answer).dead_letters;
}
