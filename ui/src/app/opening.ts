import type { QueryClient } from "@tanstack/react-query";

import { BASE } from "~/api/address";
import { explained, me } from "~/api/queries";

import { DETAIL_PAGES, PAGES } from "./pages";

const RECORD = /^\/records\/([^/]+)$/;

/**
 * Ask at once for all that the address of this tab needs: the caller, the page, and the record that
 * it shows. Otherwise the page waits for the caller, and the record for the page.
 */
export function begin(client: QueryClient, pathname: string): void {
  const path = pathname.slice(BASE.length).replace(/\/$/, "") || "/";
  const [, record] = RECORD.exec(path) ?? [];
  const pattern = record === undefined ? path : "/records/:id";
  // What fails here is asked for again when it is drawn, and then says why.
  const later = () => undefined;
  client.query(me).catch(later);
  if (record !== undefined) client.query(explained(decoded(record))).catch(later);
  const page = [...PAGES, ...DETAIL_PAGES].find((each) => each.path === pattern);
  page?.load().catch(later);
}

/** Return a part of a path as the router reads it; a damaged one stays as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
