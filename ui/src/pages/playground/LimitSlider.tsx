import { useId } from "react";

import type { Places } from "./limits";
import css from "./LimitSlider.module.css";

type Props = {
  label: string;
  places: Places;
  place: number;
  words: string;
  onChange: (place: number) => void;
};

/** A limit that can be tightened; at its right end it is as declared. */
export function LimitSlider({ label, places, place, words, onChange }: Props) {
  const id = useId();
  return (
    <div className={css.slider}>
      <label htmlFor={id}>
        {label}
        <output htmlFor={id}>{words}</output>
      </label>
      <input
        id={id}
        type="range"
        {...places}
        value={place}
        aria-valuetext={words}
        onChange={(event) => onChange(Number(event.target.value))}
      />
    </div>
  );
}
