import { useQuery } from "@tanstack/react-query";

import type { paths } from "@client/schema";
import { me } from "./queries";

type Method = "GET" | "POST" | "PUT" | "DELETE";

/** A method and a path of the API: `GET /v1/contexts`. Misspelt paths do not compile. */
export type Operation = `${Method} ${keyof paths}`;

/** Return whether the key of this session may use an operation; no button is shown otherwise. */
export function useCan(operation: Operation): boolean {
  const { data } = useQuery(me);
  return data?.operations.includes(operation) ?? false;
}
