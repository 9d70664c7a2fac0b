import {
  useId,
  type InputHTMLAttributes,
  type ReactNode,
  type Ref,
  type TextareaHTMLAttributes,
} from "react";

import css from "./Field.module.css";

type LabelProps = {
  label: string;
  /** Show the label to screen readers only, where the place says it already. */
  quiet?: boolean;
  problem?: string | null;
  aside?: ReactNode;
};

/** A label, the control that the function makes of these attributes, and its problem below. */
function Labelled({
  label,
  quiet = false,
  problem,
  aside,
  control,
}: LabelProps & { control: (attributes: ControlAttributes) => ReactNode }) {
  const id = useId();
  const problemId = `${id}-problem`;
  return (
    <div className={css.field}>
      <label htmlFor={id} className={quiet ? "visually-hidden" : css.label}>
        {label}
        {aside}
      </label>
      {control(problem ? { id, "aria-invalid": true, "aria-describedby": problemId } : { id })}
      {problem && (
        <p id={problemId} className={css.problem}>
          {problem}
        </p>
      )}
    </div>
  );
}

type ControlAttributes = { id: string; "aria-invalid"?: true; "aria-describedby"?: string };

type FieldProps = LabelProps &
  InputHTMLAttributes<HTMLInputElement> & { ref?: Ref<HTMLInputElement> };

/** A labelled text field with its problem below. */
export function Field({ label, quiet, problem, aside, ...rest }: FieldProps) {
  return (
    <Labelled
      {...{ label, quiet, problem, aside }}
      control={(attributes) => (
        <input
          autoComplete="off"
          spellCheck={false}
          dir="auto"
          {...rest}
          {...attributes}
          className={css.input}
        />
      )}
    />
  );
}

type TextAreaProps = LabelProps &
  TextareaHTMLAttributes<HTMLTextAreaElement> & {
    /** Whether the text is code. */
    mono?: boolean;
    /** The lines that have room before it grows. */
    rows?: number;
  };

/** A labelled field for several lines, which grows with them. */
export function TextArea({
  label,
  quiet,
  problem,
  aside,
  mono = false,
  rows = 1,
  ...rest
}: TextAreaProps) {
  return (
    <Labelled
      {...{ label, quiet, problem, aside }}
      control={(attributes) => (
        <textarea
          spellCheck={false}
          dir="auto"
          {...rest}
          {...attributes}
          className={mono ? `${css.area} ${css.mono}` : css.area}
          style={{ minHeight: `max(1.875rem, ${rows}lh)` }}
        />
      )}
    />
  );
}

type ChoiceProps = LabelProps & {
  value: string;
  onChange: (value: string) => void;
  options: readonly (readonly [value: string, label: string])[];
};

/** A choice of one among few: the browser's own select, which keyboards and phones know best. */
export function Choice({ label, quiet, problem, aside, value, onChange, options }: ChoiceProps) {
  return (
    <Labelled
      {...{ label, quiet, problem, aside }}
      control={(attributes) => (
        <select
          {...attributes}
          className={css.input}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        >
          {options.map(([each, text]) => (
            <option key={each} value={each}>
              {text}
            </option>
          ))}
        </select>
      )}
    />
  );
}
