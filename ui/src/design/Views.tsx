import type { Icon } from "@tabler/icons-react";

import css from "./Views.module.css";

type Props<View extends string> = {
  views: readonly (readonly [view: View, label: string, icon?: Icon])[];
  view: View;
  onChange: (view: View) => void;
};

/** The views of a page side by side, of which one is shown. */
export function Views<View extends string>({ views, view, onChange }: Props<View>) {
  return (
    <div className={css.views} role="group" aria-label="View">
      {views.map(([each, label, Icon]) => (
        <button
          key={each}
          type="button"
          aria-pressed={each === view}
          onClick={() => onChange(each)}
        >
          {Icon && <Icon size={15} stroke={1.7} aria-hidden />}
          {label}
        </button>
      ))}
    </div>
  );
}
