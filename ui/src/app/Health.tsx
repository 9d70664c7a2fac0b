import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";

import { api, body } from "~/api/client";
import { useReachability } from "~/api/reachability";
import { StateBadge, type State } from "~/design";

const STATES: Record<string, State> = { ready: "fresh", degraded: "ageing" };

/** The word for the health of the server. */
export function Health() {
  const { reachable } = useReachability();
  const { data } = useQuery({
    queryKey: ["readiness"],
    queryFn: async ({ signal }) => body(await api.GET("/readyz", { signal })),
    refetchInterval: 10_000,
  });
  const word = reachable ? (data?.status ?? "checking") : "no answer";
  return (
    <Link href="/">
      <StateBadge state={reachable ? (STATES[word] ?? "unknown") : "failed"}>{word}</StateBadge>
    </Link>
  );
}
