import { SERVER } from "~/api/address";

/** A request of the API in three notations, for a terminal, a script or a ticket. */
export type Call = {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  /** Path and query string. */
  path: string;
  body?: unknown;
  /** Words after `headwater`; null if no command does the same. */
  cli?: readonly string[] | null;
  /** An expression with `client`; null if the client has no such verb. */
  python?: string | null;
  /** The imports that the expression needs, besides that of the client. */
  imports?: readonly string[];
};

/** Quote a word for a POSIX shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export function asCurl({ method = "GET", path, body }: Call, origin = SERVER): string {
  const words = ["curl", "-s"];
  if (method !== "GET") words.push("-X", method);
  words.push("-H", '"X-API-Key: $HEADWATER_CLIENT_KEY"');
  if (body !== undefined) {
    words.push("-H", "'Content-Type: application/json'", "-d", quoted(JSON.stringify(body)));
  }
  return [...words, quoted(origin + path)].join(" ");
}

export function asCli({ cli }: Call, origin = SERVER): string | null {
  if (!cli) return null;
  return ["headwater", ...cli.map(quoted), "--url", quoted(origin)].join(" ");
}

/** Return a JSON value as a literal of Python. */
export function pythonValue(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(pythonValue).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const items = Object.entries(value).map(
    ([name, item]) => `${JSON.stringify(name)}: ${pythonValue(item)}`,
  );
  return `{${items.join(", ")}}`;
}

export function asPython({ python, imports = [] }: Call, origin = SERVER): string | null {
  if (!python) return null;
  return [
    ...imports.flatMap((line) => [line, ""]),
    "from headwater.client import Client",
    "",
    `with Client(${JSON.stringify(origin)}) as client:`,
    `    answer = client.${python}`,
  ].join("\n");
}
