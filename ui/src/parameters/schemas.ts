import type { Parameter } from "./parameters";

/** The fields of a declared payload, as parameters of a form. */

type Json = Readonly<Record<string, unknown>>;

/** A parameter with the values to choose from, if these are few, and what it means. */
export type FormParameter = Parameter & {
  choices?: readonly unknown[];
  description?: string;
};

const REFERENCE = "#/$defs/";
const TYPES: Readonly<Record<string, string>> = {
  string: "str",
  integer: "int",
  number: "float",
  boolean: "bool",
  null: "None",
};
const FORMATS: Readonly<Record<string, string>> = {
  "date-time": "datetime.datetime",
  date: "datetime.date",
  uuid: "uuid.UUID",
};

/** Return a parameter for each property of a JSON Schema. */
export function fieldsOf(schema: Json): FormParameter[] {
  const required = new Set((schema.required ?? []) as string[]);
  const definitions = (schema.$defs ?? {}) as Readonly<Record<string, Json>>;
  return Object.entries((schema.properties ?? {}) as Readonly<Record<string, Json>>).map(
    ([name, property]): FormParameter => {
      const own = resolved(property, definitions);
      const choices = choicesOf(own, definitions);
      const description = property.description ?? own.description;
      return {
        name,
        type: choices === null ? typeOf(own, definitions) : choices.map(shown).join(" | "),
        required: required.has(name),
        default: own.default ?? property.default ?? null,
        ...(choices !== null && { choices }),
        ...(typeof description === "string" && { description }),
      };
    },
  );
}

function resolved(part: Json, definitions: Readonly<Record<string, Json>>): Json {
  const reference = part.$ref;
  if (typeof reference !== "string") return part;
  return definitions[reference.slice(REFERENCE.length)] ?? part;
}

function alternativesOf(part: Json, definitions: Readonly<Record<string, Json>>): Json[] {
  const parts = (part.anyOf ?? [part]) as Json[];
  return parts.map((each) => resolved(each, definitions));
}

/** Return the values that a field may have, or null if these are not few. */
function choicesOf(part: Json, definitions: Readonly<Record<string, Json>>): unknown[] | null {
  const alternatives = alternativesOf(part, definitions);
  const isChoice = alternatives.some((each) => "enum" in each || "const" in each);
  const choices = alternatives.map((each) => {
    if (Array.isArray(each.enum)) return each.enum as unknown[];
    if ("const" in each) return [each.const];
    if (each.type === "null") return [null];
    return each.type === "boolean" && isChoice ? [true, false] : null;
  });
  return isChoice && choices.every((each) => each !== null) ? choices.flat() : null;
}

/** Return the type of a field as a features file annotates it. */
function typeOf(part: Json, definitions: Readonly<Record<string, Json>>): string {
  return alternativesOf(part, definitions)
    .map((each) => {
      if (each.type === "array") {
        const items = each.items;
        const inner = typeof items === "object" && items !== null ? (items as Json) : {};
        return `list[${typeOf(resolved(inner, definitions), definitions)}]`;
      }
      const format = FORMATS[String(each.format)];
      if (format !== undefined) return format;
      const known = TYPES[String(each.type)];
      return known ?? (typeof each.title === "string" ? each.title : "dict[str, Any]");
    })
    .join(" | ");
}

function shown(value: unknown): string {
  return value === null ? "None" : JSON.stringify(value);
}
