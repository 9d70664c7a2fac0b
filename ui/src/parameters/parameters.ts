import type { Schema } from "~/api/client";

/** The arguments of a context or a retriever, as they are typed into a form. */

export type Parameter = Schema<"ParameterListing">;

/** How one argument is entered: everything without a field of its own is JSON. */
export type Kind = "text" | "integer" | "number" | "boolean" | "json";

/** The text of every field that was touched; a field without one keeps its default. */
export type Texts = Readonly<Record<string, string>>;

type Parsed = {
  params: Record<string, unknown>;
  /** What is wrong with a field, by name. */
  problems: Readonly<Record<string, string>>;
};

const KINDS: Readonly<Record<string, Kind>> = {
  str: "text",
  int: "integer",
  float: "number",
  bool: "boolean",
  "datetime.datetime": "text",
  "datetime.date": "text",
  "uuid.UUID": "text",
};

/** Return how a parameter of an annotated type is entered. */
export function kindOf(type: string | null): Kind {
  const [only, ...others] = alternatives(type);
  if (only === undefined || others.length > 0) return "json";
  return KINDS[only] ?? "json";
}

/** Return whether a parameter may be None, so that an empty field stands for it. */
export function isOptional(type: string | null): boolean {
  return type?.split("|").some((each) => each.trim() === "None") ?? false;
}

function alternatives(type: string | null): string[] {
  if (type === null || /[[(]/.test(type)) return [];
  return type
    .split("|")
    .map((each) => each.trim())
    .filter((each) => each !== "None");
}

/** Return the arguments that the texts stand for, and what is wrong with them. */
export function parsed(parameters: readonly Parameter[], texts: Texts): Parsed {
  const params: Record<string, unknown> = {};
  const problems: Record<string, string> = {};
  for (const parameter of parameters) {
    const { name, type, required } = parameter;
    const text = texts[name];
    if (text === undefined || (text === "" && !isGiven(parameter))) {
      if (required) problems[name] = "This one is required.";
      continue;
    }
    try {
      params[name] =
        isOptional(type) && text.trim() === "null" ? null : READERS[kindOf(type)](text);
    } catch (error) {
      problems[name] = error instanceof Error ? error.message : String(error);
    }
  }
  return { params, problems };
}

/** Return whether an empty field means an empty text, and not the default. */
function isGiven({ type, required, default: initial }: Parameter): boolean {
  return kindOf(type) === "text" && !required && typeof initial === "string" && initial !== "";
}

const READERS: Readonly<Record<Kind, (text: string) => unknown>> = {
  text: (text) => text,
  boolean: (text) => text === "true",
  integer: (text) => {
    if (!/^-?\d+$/.test(text.trim())) throw new Error("Give a whole number, such as 7.");
    // Ids may be longer than a JavaScript number is exact; the server takes digits as text.
    return Number.isSafeInteger(Number(text)) ? Number(text) : text.trim();
  },
  number: (text) => {
    const number = text.trim() === "" ? Number.NaN : Number(text);
    if (!Number.isFinite(number)) throw new Error("Give a number, such as 0.5.");
    return number;
  },
  json: (text) => {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      throw new Error('This is not JSON. Write texts in quotes, as in ["a", "b"].');
    }
  },
};

/** Return the text that a field shows for a value: the inverse of `parsed`. */
export function textOf(type: string | null, value: unknown): string {
  return kindOf(type) !== "json" && typeof value === "string" ? value : JSON.stringify(value);
}

/** Return the texts for arguments, for example of a link. */
export function textsOf(
  parameters: readonly Parameter[],
  params: Readonly<Record<string, unknown>>,
): Texts {
  return Object.fromEntries(
    parameters
      .filter(({ name }) => Object.hasOwn(params, name))
      .map(({ name, type }) => [name, textOf(type, params[name])]),
  );
}

/** Return an object that a query string holds as JSON; a damaged one counts as empty. */
export function objectOf(json: string | null): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(json ?? "{}");
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : {};
  } catch {
    return {};
  }
}
