import { PAGES } from "~/app/pages";

/** Return the address of the view that shows a finding; null if no page has this name. */
export function hrefOf(page: string, params: Readonly<Record<string, string>>): string | null {
  if (!PAGES.some(({ path }) => path === `/${page}`)) return null;
  const query = new URLSearchParams(params).toString();
  return `/${page}${query && `?${query}`}`;
}

/** Split a text at its commands and names, which are written in backticks or with underscores. */
export function words(text: string): { text: string; isCode: boolean }[] {
  return text
    .split(/(`[^`]+`|(?<![\w./-])[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+(?![\w/-]))/)
    .map((part, index) => ({ text: part.replaceAll("`", ""), isCode: index % 2 === 1 }))
    .filter((part) => part.text !== "");
}
