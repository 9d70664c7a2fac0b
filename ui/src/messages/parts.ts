/** Parts of messages in the neutral shape, and how they read. Pure. */
import { count, inline, pretty } from "~/design/format";

export type Role = "system" | "user" | "assistant" | "tool";

export type TextPart = { type: "text"; content: string };
export type ToolCall = { type: "tool_call"; id: string; name: string; arguments: unknown };
export type ToolResult = {
  type: "tool_call_response";
  id: string;
  response: unknown;
  is_error?: boolean;
};
/** An image; its bytes are base64, and absent where only their hash is known. */
export type Blob = {
  type: "blob";
  mime_type: string;
  content?: string | undefined;
  digest?: string | undefined;
  size?: number | undefined;
};
export type Uri = { type: "uri"; uri: string };
export type Reasoning = { type: "reasoning"; content: string };
export type Tool = { type: "function"; name: string; description?: string; parameters?: unknown };
export type Part = TextPart | ToolCall | ToolResult | Blob | Uri | Reasoning | Tool;

/** The texts that a part of each type has. */
const NEEDED: ReadonlyMap<unknown, readonly string[]> = new Map([
  ["text", ["content"]],
  ["tool_call", ["id", "name"]],
  ["tool_call_response", ["id"]],
  ["blob", ["mime_type"]],
  ["uri", ["uri"]],
  ["reasoning", ["content"]],
  ["function", ["name"]],
]);

/** Return the part that a JSON text is, or null if it is none. */
export function parsedPart(text: string): Part | null {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof found !== "object" || found === null || !("type" in found)) return null;
  const fields = found as Record<string, unknown>;
  const needed = NEEDED.get(fields.type);
  return needed?.every((name) => typeof fields[name] === "string") ? (found as Part) : null;
}

/** Formats that browsers draw without running anything. */
const DRAWN = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Return the address of the bytes of an image, or null if they are absent or not drawn. */
export function imageAddress({ mime_type: type, content }: Blob): string | null {
  return content !== undefined && DRAWN.includes(type) ? `data:${type};base64,${content}` : null;
}

/** Return what is known of an image: `image/png, 1.2 kB`. */
export function imageWords({ mime_type: type, content, size }: Blob): string {
  const padding = content?.endsWith("==") ? 2 : content?.endsWith("=") ? 1 : 0;
  const bytes = size ?? (content === undefined ? null : (content.length / 4) * 3 - padding);
  return bytes === null ? type : `${type}, ${bytesText(bytes)}`;
}

/** Return a number of bytes: `830 bytes`, `12.4 kB`, `3.1 MB`. */
export function bytesText(bytes: number): string {
  if (bytes < 1_000) return `${count(bytes)} bytes`;
  const [size, unit] = bytes < 1_000_000 ? [1_000, "kB"] : [1_000_000, "MB"];
  return `${Number((bytes / size).toPrecision(3))} ${unit}`;
}

const LINE = 96;

/** Return a JSON value on one line if it is short, otherwise in lines; texts stay as they are. */
export function jsonText(value: unknown): string {
  if (value === undefined) return "";
  const line = inline(value);
  if (typeof value === "string" || line.length <= LINE) return line;
  return pretty(value);
}

/** A parameter of a tool: `limit?: integer`. */
export type Parameter = { name: string; type: string; isRequired: boolean };

/** Return the parameters that the schema of a tool names. */
export function parametersOf({ parameters }: Tool): Parameter[] {
  const schema = record(parameters);
  const required = Array.isArray(schema.required) ? (schema.required as unknown[]) : [];
  return Object.entries(record(schema.properties)).map(([name, each]) => ({
    name,
    type: typeText(record(each)),
    isRequired: required.includes(name),
  }));
}

function typeText({ type, enum: choices }: Record<string, unknown>): string {
  if (Array.isArray(choices)) return choices.map((choice) => JSON.stringify(choice)).join(" | ");
  if (typeof type === "string") return type;
  return Array.isArray(type) ? type.join(" | ") : "any";
}

function record(value: unknown): Record<string, unknown> {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? (value as Record<string, unknown>) : {};
}
