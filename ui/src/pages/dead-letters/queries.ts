import {
  focusManager,
  infiniteQueryOptions,
  queryOptions,
  useQueryClient,
} from "@tanstack/react-query";
import { useEffect } from "react";

import { api, body, type Schema } from "~/api/client";

export type Letter = Schema<"DeadLetter">;
export type Group = Schema<"LetterGroup">;
export type Settled = Schema<"SettledLetter">;
export type Verb = "redrive" | "discard";

/** What to settle: some letters, or all of a group. */
export type Target = { ids: readonly string[] } | { feature: string; error: string };

const PAGE = 100;
const NEWEST = 200;
const REFRESH_MS = 5_000;
/** A redriven letter that fails again is back soon. */
const SOON_MS = 1_000;
const SOON_READS = 30;

export const letterGroups = queryOptions({
  queryKey: ["dead-letters", "groups"],
  queryFn: async ({ signal }) => body(await api.GET("/v1/dead-letters/groups", { signal })),
});

/** Read the groups and the listed letters again, together: more often after a redrive. */
export function useFreshLetters(lastRedrive: object | null): void {
  const client = useQueryClient();
  useEffect(() => {
    let reads = 0;
    let timer: ReturnType<typeof setTimeout>;
    const wait = () => {
      const isSoon = lastRedrive !== null && ++reads <= SOON_READS;
      timer = setTimeout(read, isSoon ? SOON_MS : REFRESH_MS);
    };
    const read = () => {
      // A slow answer is waited for. A page in the background asks nothing.
      const again = { cancelRefetch: false };
      if (focusManager.isFocused())
        void client.invalidateQueries({ queryKey: ["dead-letters"] }, again);
      wait();
    };
    wait();
    return () => clearTimeout(timer);
  }, [client, lastRedrive]);
}

/** The newest letters of all groups, among which redriven ones are that have failed again. */
export const newestLetters = queryOptions({
  queryKey: ["dead-letters", "newest"],
  queryFn: async ({ signal }) => {
    const query = { newest_first: true, limit: NEWEST };
    return body(await api.GET("/v1/dead-letters", { params: { query }, signal })).dead_letters;
  },
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
  const options = { body: selection as Schema<"RedriveDeadLettersBody"> };
  const answer =
    verb === "redrive"
      ? await api.POST("/v1/dead-letters/redrive", options)
      : await api.POST("/v1/dead-letters/discard", options);
  return body(answer).dead_letters;
}
