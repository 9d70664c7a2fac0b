/** The path that a proxy puts before the one of the server, such as "/tools"; mostly empty. */
const PREFIX = prefixOf(location.pathname);

/** The address of the server that serves this page. */
export const SERVER = location.origin + PREFIX;

/** The path of the UI itself. */
export const BASE = `${PREFIX}/ui`;

export function prefixOf(path: string): string {
  return /^(.*?)\/ui(?:\/|$)/.exec(path)?.[1] ?? "";
}
