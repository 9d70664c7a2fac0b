import { useSearch } from "wouter/use-browser-location";

/**
 * Return the query string for wouter, which decodes it before URLSearchParams decodes it again:
 * an id such as `50%41` would be read as another one.
 */
export function useExactSearch(): string {
  return useSearch().replaceAll("%25", "%2525");
}
