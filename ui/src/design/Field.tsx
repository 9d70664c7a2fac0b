import { useId, type InputHTMLAttributes, type ReactNode, type Ref } from "react";

import css from "./Field.module.css";

type Props = InputHTMLAttributes<HTMLInputElement> & {
  label: string;
  /** Show the label to screen readers only, where the place says it already. */
  quiet?: boolean;
  problem?: string | null;
  aside?: ReactNode;
  ref?: Ref<HTMLInputElement>;
};

/** A labelled text field with its problem below. */
export function Field({ label, quiet = false, problem, aside, ...rest }: Props) {
  const id = useId();
  return (
    <div className={css.field}>
      <label htmlFor={id} className={quiet ? "visually-hidden" : css.label}>
        {label}
        {aside}
      </label>
      <input
        id={id}
        autoComplete="off"
        spellCheck={false}
        dir="auto"
        {...rest}
        className={css.input}
        aria-invalid={problem ? true : undefined}
        aria-describedby={problem ? `${id}-problem` : undefined}
      />
      {problem && (
        <p id={`${id}-problem`} className={css.problem}>
          {problem}
        </p>
      )}
    </div>
  );
}

type ChoiceProps = {
  label: string;
  quiet?: boolean;
  value: string;
  onChange: (value: string) => void;
  options: readonly (readonly [value: string, label: string])[];
};

/** A choice of one among few: the browser's own select, which keyboards and phones know best. */
export function Choice({ label, quiet = false, value, onChange, options }: ChoiceProps) {
  const id = useId();
  return (
    <div className={css.field}>
      <label htmlFor={id} className={quiet ? "visually-hidden" : css.label}>
        {label}
      </label>
      <select
        id={id}
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
    </div>
  );
}
