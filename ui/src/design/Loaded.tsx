import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { ErrorPanel } from "./Notice";
import { Skeleton } from "./Skeleton";

type Props<T> = {
  query: UseQueryResult<T>;
  children: (data: T) => ReactNode;
  /** The shape of what comes. */
  loading?: ReactNode;
};

/** The data of a query, or its shape, or why there is none. Known data stays when a refresh fails. */
export function Loaded<T>({ query, children, loading = <Skeleton /> }: Props<T>) {
  if (query.data !== undefined) return children(query.data);
  if (query.isError) return <ErrorPanel error={query.error} retry={() => void query.refetch()} />;
  return loading;
}
