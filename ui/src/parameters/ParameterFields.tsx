import { useId, type KeyboardEvent } from "react";

import { Field } from "~/design";

import css from "./ParameterFields.module.css";
import { isOptional, kindOf, textOf, type Parameter, type Texts } from "./parameters";

type Props = {
  parameters: readonly Parameter[];
  texts: Texts;
  onChange: (texts: Texts) => void;
  /** What is wrong with a field, by name; shown when the form was sent. */
  problems: Readonly<Record<string, string>>;
};

/** A field for each parameter of a declared function, after its type, default and necessity. */
export function ParameterFields({ parameters, texts, onChange, problems }: Props) {
  return (
    <div className={css.fields}>
      {parameters.map((parameter) => (
        <ParameterField
          key={parameter.name}
          parameter={parameter}
          text={texts[parameter.name]}
          problem={problems[parameter.name]}
          onChange={(text) => onChange({ ...texts, [parameter.name]: text })}
        />
      ))}
    </div>
  );
}

type FieldProps = {
  parameter: Parameter;
  text: string | undefined;
  problem: string | undefined;
  onChange: (text: string) => void;
};

function ParameterField({ parameter, text, problem, onChange }: FieldProps) {
  const { name, type, required, default: initial } = parameter;
  const kind = kindOf(type);
  const note = required ? "required" : isOptional(type) ? "optional" : "has a default";
  const aside = (
    <span className={css.note}>
      <code>{type ?? "any"}</code> {note}
    </span>
  );
  const placeholder = required || initial === null ? "" : textOf(type, initial);
  if (kind === "boolean") {
    return <Checkbox {...{ name, aside, text, onChange }} initial={initial === true} />;
  }
  if (kind === "json" || kind === "text") {
    return (
      <TextArea
        {...{ name, aside, placeholder, problem, onChange }}
        text={text}
        mono={kind === "json"}
      />
    );
  }
  return (
    <Field
      label={name}
      aside={aside}
      inputMode={kind === "integer" ? "numeric" : "decimal"}
      value={text ?? ""}
      placeholder={placeholder}
      problem={problem}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}

type TextAreaProps = {
  name: string;
  aside: React.ReactNode;
  text: string | undefined;
  placeholder: string;
  problem: string | undefined;
  mono: boolean;
  onChange: (text: string) => void;
};

/** A text that grows with its lines; Enter sends the form, Shift Enter begins a line. */
function TextArea({ name, aside, text, placeholder, problem, mono, onChange }: TextAreaProps) {
  const id = useId();
  const send = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    event.currentTarget.form?.requestSubmit();
  };
  return (
    <div className={css.field}>
      <label htmlFor={id} className={css.label}>
        {name}
        {aside}
      </label>
      <textarea
        id={id}
        rows={1}
        spellCheck={false}
        dir="auto"
        className={mono ? `${css.area} ${css.mono}` : css.area}
        value={text ?? ""}
        placeholder={placeholder}
        aria-invalid={problem ? true : undefined}
        aria-describedby={problem ? `${id}-problem` : undefined}
        onKeyDown={send}
        onChange={(event) => onChange(event.target.value)}
      />
      {problem && (
        <p id={`${id}-problem`} className={css.problem}>
          {problem}
        </p>
      )}
    </div>
  );
}

type CheckboxProps = {
  name: string;
  aside: React.ReactNode;
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
