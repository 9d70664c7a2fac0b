import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";

import { api, body } from "~/api/client";
import { useCan } from "~/api/me";
import { ProblemError } from "~/api/problems";
import { overview } from "~/api/queries";
import { useReachability } from "~/api/reachability";
import { StateBadge, type State } from "~/design";

const STATES: Record<string, State> = {
  healthy: "fresh",
  ready: "fresh",
  attention: "ageing",
  degraded: "ageing",
  failing: "failed",
  "not ready": "failed",
};

/** One word for the health of the store, or of the server for keys that may not see more. */
export function Health() {
  const { reachable } = useReachability();
  const seesOverview = useCan("GET /v1/overview");
  const store = useQuery({ ...overview, enabled: seesOverview });
  const server = useQuery({
    queryKey: ["readiness"],
    queryFn: async ({ signal }) => {
      try {
        return body(await api.GET("/readyz", { signal })).status;
      } catch (error) {
        // The answer of a server that is not ready has this status.
        if (error instanceof ProblemError && error.status === 503) return "not ready";
        throw error;
      }
    },
    refetchInterval: 10_000,
    enabled: !seesOverview,
  });
  const status = seesOverview ? store.data?.status : server.data;
  const word = reachable ? (status ?? "checking") : "no answer";
  const state = reachable ? (STATES[word] ?? "unknown") : "failed";
  return (
    <Link href="/" aria-label={`Health: ${word}`}>
      <StateBadge state={state}>{word}</StateBadge>
    </Link>
  );
}
