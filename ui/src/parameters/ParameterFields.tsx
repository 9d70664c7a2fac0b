import { useQuery } from "@tanstack/react-query";
import { useId, type ChangeEvent, type KeyboardEvent, type ReactNode } from "react";

import type { Schema } from "~/api/client";
import { declarations } from "~/api/queries";
import { Choice, Field, TextArea } from "~/design";
import { inline } from "~/design/format";

import { IdField } from "./IdField";
import css from "./ParameterFields.module.css";
import { isOptional, kindOf, textOf, type Parameter, type Texts } from "./parameters";
import type { FormParameter } from "./schemas";

type Props = {
  parameters: readonly FormParameter[];
  texts: Texts;
  onChange: (texts: Texts) => void;
  /** What is wrong with a field, by name; shown when the form was sent. */
  problems: Readonly<Record<string, string>>;
};

/** A field for each parameter of a declared function, after its type, default and necessity. */
export function ParameterFields({ parameters, texts, onChange, problems }: Props) {
  const entities = useQuery(declarations).data?.entities;
  return (
    <div className={css.fields}>
      {parameters.map((parameter) => (
        <ParameterField
          key={parameter.name}
          parameter={parameter}
          entity={entities?.find((each) => isIdOf(each, parameter))?.name}
          text={texts[parameter.name]}
          problem={problems[parameter.name]}
          onChange={(text) => onChange({ ...texts, [parameter.name]: text })}
        />
      ))}
    </div>
  );
}

/** Return whether a parameter is named like the ids of an entity, and can be one. */
function isIdOf({ id_field }: Schema<"EntityListing">, { name, type }: Parameter): boolean {
  return id_field === name && kindOf(type) !== "json" && kindOf(type) !== "boolean";
}

type FieldProps = {
  parameter: FormParameter;
  /** The entity whose ids are named like the parameter. */
  entity: string | undefined;
  text: string | undefined;
  problem: string | undefined;
  onChange: (text: string) => void;
};

function ParameterField({ parameter, entity, text, problem, onChange }: FieldProps) {
  const { name, type, required, default: initial, choices } = parameter;
  const kind = kindOf(type);
  const aside = <Note of={parameter} />;
  const values = kind === "boolean" && required ? [true, false] : choices;
  if (values !== undefined) {
    const options = [noneOf(parameter), ...values.map(optionOf)];
    return <Choice {...{ label: name, aside, problem, onChange, options }} value={text ?? ""} />;
  }
  if (kind === "boolean") {
    return <Checkbox {...{ name, aside, text, onChange }} initial={initial === true} />;
  }
  const field = {
    label: name,
    aside,
    placeholder: placeholderOf(parameter),
    problem,
    value: text ?? "",
    onChange: (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) =>
      onChange(event.target.value),
  };
  if (entity !== undefined) return <IdField {...field} entity={entity} />;
  if (kind === "json" || kind === "text") {
    return <TextArea {...field} mono={kind === "json"} onKeyDown={sendByEnter} />;
  }
  return <Field {...field} inputMode={kind === "integer" ? "numeric" : "decimal"} />;
}

function placeholderOf({ type, required, default: initial }: Parameter): string {
  return required || initial === null ? "" : textOf(type, initial);
}

/** What may be entered, whether it must be, and what it means. */
function Note({ of: { type, required, choices, description } }: { of: FormParameter }) {
  const note = required ? "required" : isOptional(type) ? "optional" : "has a default";
  return (
    <span className={css.note}>
      {choices === undefined && <code>{type ?? "any"}</code>} {note}
      {description !== undefined && (
        <>
          {" · "}
          <bdi>{description}</bdi>
        </>
      )}
    </span>
  );
}

/** Return the option that stands for no value. */
function noneOf({ required, default: initial }: Parameter): readonly [string, string] {
  return ["", required ? "Choose one" : `Default: ${inline(initial)}`];
}

/** Return a value as an option: its JSON, which is read back, and the words for it. */
function optionOf(value: unknown): readonly [string, string] {
  const json = JSON.stringify(value);
  return [json, typeof value === "string" ? value : json];
}

/** Send the form by Enter; Shift Enter begins a line. */
function sendByEnter(event: KeyboardEvent<HTMLTextAreaElement>) {
  if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
  event.preventDefault();
  event.currentTarget.form?.requestSubmit();
}

type CheckboxProps = {
  name: string;
  aside: ReactNode;
  text: string | undefined;
  initial: boolean;
  onChange: (text: string) => void;
};

function Checkbox({ name, aside, text, initial, onChange }: CheckboxProps) {
  const id = useId();
  return (
    <div className={css.check}>
      <input
        id={id}
        type="checkbox"
        checked={text === undefined ? initial : text === "true"}
        onChange={(event) => onChange(String(event.target.checked))}
      />
      <label htmlFor={id} className={css.label}>
        {name}
        {aside}
      </label>
    </div>
  );
}
