import { useQuery } from "@tanstack/react-query";

import { me } from "~/api/queries";

import { PAGES, type Page } from "./pages";

/** Return the pages that the key of this session may use. */
export function useAllowedPages(): readonly Page[] {
  const { data } = useQuery(me);
  return PAGES.filter(({ needs }) => needs === null || (data?.operations.includes(needs) ?? false));
}

/** Return a function that tells whether the key of this session may open an address. */
export function useMayOpen(): (href: string) => boolean {
  const pages = useAllowedPages();
  return (href) => pages.some(({ path }) => path === `/${href.split(/[/?]/)[1] ?? ""}`);
}
