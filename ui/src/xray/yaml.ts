/** JSON values as YAML that parsers of YAML 1.1 and 1.2 read as equal values. Pure. */

/** Words that both versions read as text; everything else is quoted as in JSON. */
const WORD = /^[A-Za-z_][A-Za-z0-9_]+$/;
const NOT_TEXT = new Set(["null", "true", "false", "yes", "no", "on", "off"]);

export function toYaml(value: unknown): string {
  return `${lines(value, "").join("\n")}\n`;
}

function lines(value: unknown, indent: string): string[] {
  if (Array.isArray(value) && value.length > 0) {
    return value.flatMap((each) => nested(each, `${indent}- `, `${indent}  `));
  }
  if (isObject(value) && Object.keys(value).length > 0) {
    return Object.entries(value).flatMap(([key, each]) => {
      const head = `${indent}${scalar(key)}:`;
      return isNested(each) ? [head, ...lines(each, `${indent}  `)] : [`${head} ${scalar(each)}`];
    });
  }
  return [`${indent}${scalar(value)}`];
}

/** A value whose first line follows a dash. */
function nested(value: unknown, first: string, indent: string): string[] {
  if (!isNested(value)) return [`${first}${scalar(value)}`];
  const inner = lines(value, indent);
  return [`${first}${(inner[0] ?? "").slice(indent.length)}`, ...inner.slice(1)];
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const isNested = (value: unknown): boolean =>
  (Array.isArray(value) && value.length > 0) || (isObject(value) && Object.keys(value).length > 0);

function scalar(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value);
  if (WORD.test(value) && !NOT_TEXT.has(value.toLowerCase())) return value;
  // JSON leaves some characters as they are that YAML does not allow.
  return JSON.stringify(value).replace(
    /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
