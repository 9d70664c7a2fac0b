import { useQuery } from "@tanstack/react-query";

import { api, body } from "~/api/client";
import { me } from "~/api/queries";
import { Empty } from "~/design";

import type { Page } from "./pages";

/** Why the key of this session may not see a page, and which key may. */
export function Forbidden({ page: { label, needs } }: { page: Page }) {
  const { data: caller } = useQuery(me);
  const { data: document } = useQuery({
    queryKey: ["openapi"],
    queryFn: async ({ signal }) => body(await api.GET("/openapi.json", { signal })),
    staleTime: Infinity,
  });
  const scope = needs === null ? null : scopeOf(document, needs);
  const title = "Your key may not see this page";
  if (scope === null || caller === undefined) {
    return <Empty title={title}>The menu has the pages that it may see.</Empty>;
  }
  if ((caller.scopes as string[]).includes(scope)) {
    return (
      <Empty title={title}>
        {label} is about the whole store, and the key <bdi>{caller.name}</bdi> is limited to a part
        of it. It needs a key with the scope <code>{scope}</code> and without limits.
      </Empty>
    );
  }
  const scopes = [...caller.scopes, scope].map((each) => `--scope ${each}`).join(" ");
  return (
    <Empty title={title} command={`headwater keys create NAME ${scopes}`}>
      {label} needs the scope <code>{scope}</code>; the key <bdi>{caller.name}</bdi> has{" "}
      {caller.scopes.length === 0 ? "none" : caller.scopes.join(", ")}. An operator makes a key that
      has it too:
    </Empty>
  );
}

type Described = { paths?: Record<string, Record<string, { "x-scope"?: string }>> };

/** Return the scope of an operation such as `GET /v1/contexts`, as the API describes it. */
export function scopeOf(document: Described | undefined, operation: string): string | null {
  const [method = "", path = ""] = operation.split(" ");
  return document?.paths?.[path]?.[method.toLowerCase()]?.["x-scope"] ?? null;
}
