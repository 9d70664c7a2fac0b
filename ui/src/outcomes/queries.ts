import { queryOptions, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body } from "~/api/client";

import type { NewOutcome, Outcome } from "./model";

/** What a model answered to a context, and what was said about the answer. */
export const outcomesOf = (id: string) =>
  queryOptions({
    queryKey: ["outcomes", id],
    queryFn: async ({ signal }): Promise<readonly Outcome[]> => {
      const params = { path: { id } };
      return body(await api.GET("/v1/context/{id}/outcomes", { params, signal })).outcomes;
    },
    staleTime: 30_000,
  });

/** An outcome on its way: shown at once, and until the server has it marked as not stored. */
export type Sent = { given: NewOutcome; error: unknown };

export type Sending = {
  sent: readonly Sent[];
  send: (given: NewOutcome) => void;
  /** Forget one that failed. */
  drop: (given: NewOutcome) => void;
};

/** Return the outcomes that are on their way, and functions to send and to forget one. A second attempt
 * has the id of the first, so the server stores it once. */
export function useSending(contextId: string): Sending {
  const client = useQueryClient();
  const [sent, setSent] = useState<readonly Sent[]>([]);
  const without = (given: NewOutcome) => (all: readonly Sent[]) =>
    all.filter((each) => each.given.outcome_id !== given.outcome_id);
  const mark = (given: NewOutcome, error: unknown) =>
    setSent((all) => [...without(given)(all), { given, error }]);
  const send = async (given: NewOutcome) => {
    mark(given, null);
    try {
      await api.POST("/v1/context/{id}/outcomes", {
        params: { path: { id: contextId } },
        body: given,
      });
      // The document of the record has its outcomes too.
      void client.invalidateQueries({ queryKey: ["record", contextId] });
      await client.invalidateQueries({ queryKey: outcomesOf(contextId).queryKey });
      setSent(without(given));
    } catch (error) {
      mark(given, error);
    }
  };
  return { sent, send: (given) => void send(given), drop: (given) => setSent(without(given)) };
}
