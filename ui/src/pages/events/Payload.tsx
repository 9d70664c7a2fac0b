import { useState } from "react";

import type { Schema } from "~/api/client";
import { Button, TextArea } from "~/design";
import { ParameterFields } from "~/parameters/ParameterFields";
import { parsed, textsOf, type Texts } from "~/parameters/parameters";
import { fieldsOf, type FormParameter } from "~/parameters/schemas";

/** Return the object in a text, or what is wrong with it. */
export function parsedPayload(text: string): Record<string, unknown> | string {
  let value: unknown;
  try {
    value = JSON.parse(text.trim() === "" ? "{}" : text);
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return 'A payload is an object, such as {"amount": 40}.';
  }
  return value as Record<string, unknown>;
}

type PayloadForm = {
  /** The payload as JSON, which is what is published. */
  text: string;
  /** The payload, or what is wrong with it. */
  payload: Record<string, unknown> | string;
  /** The fields of a declared type, unless its payload is edited as JSON. */
  fields: readonly FormParameter[] | null;
  texts: Texts;
  problems: Readonly<Record<string, string>>;
  /** Whether the payload can be edited in both ways. */
  isDeclared: boolean;
  /** Whether something was entered into the fields. */
  isEdited: boolean;
  enter: (texts: Texts) => void;
  write: (text: string) => void;
  swap: () => void;
  clear: () => void;
};

/** Edit a payload, as JSON or in the fields of its schema: what one writes, the other shows. */
export function usePayload(
  schema: Schema<"EventListing">["schema"],
  text: string,
  onChange: (text: string) => void,
): PayloadForm {
  const [isJson, setJson] = useState(false);
  /** What is in the fields since one was edited: a payload cannot hold half a number. */
  const [entered, setEntered] = useState<Texts | null>(null);
  const payload = parsedPayload(text);
  const own = typeof payload === "string" ? {} : payload;
  const declared = schema === null ? [] : fieldsOf(schema);
  const texts = entered ?? textsOf(declared, own);
  const hasFields = schema !== null && !isJson && typeof payload !== "string";
  return {
    text,
    payload,
    fields: hasFields ? declared : null,
    texts,
    problems: hasFields ? parsed(declared, texts).problems : {},
    isDeclared: schema !== null,
    isEdited: entered !== null,
    enter: (next) => {
      const names = new Set(declared.map(({ name }) => name));
      const others = Object.entries(own).filter(([name]) => !names.has(name));
      const value = { ...Object.fromEntries(others), ...parsed(declared, next).params };
      setEntered(next);
      onChange(JSON.stringify(value, null, 2));
    },
    write: (next) => {
      setEntered(null);
      onChange(next);
    },
    swap: () => {
      setEntered(null);
      setJson(hasFields);
    },
    clear: () => setEntered(null),
  };
}

/** The payload of an event: a field for each property that is declared, or its JSON. */
export function Payload({ form, isTouched }: { form: PayloadForm; isTouched: boolean }) {
  if (form.fields !== null) {
    return (
      <ParameterFields
        parameters={form.fields}
        texts={form.texts}
        onChange={form.enter}
        problems={isTouched ? form.problems : {}}
      />
    );
  }
  return (
    <TextArea
      label="Payload, a JSON object"
      mono
      rows={8}
      value={form.text}
      problem={typeof form.payload === "string" ? form.payload : null}
      onChange={(event) => form.write(event.target.value)}
    />
  );
}

/** A button between the fields of a payload and its JSON. */
export function PayloadSwap({ form }: { form: PayloadForm }) {
  if (!form.isDeclared) return null;
  return (
    <Button onClick={form.swap} disabled={typeof form.payload === "string"}>
      {form.fields === null ? "Edit the fields" : "Edit as JSON"}
    </Button>
  );
}
