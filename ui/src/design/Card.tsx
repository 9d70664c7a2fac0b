import { useId, type ReactNode } from "react";

import css from "./Card.module.css";

type Props = {
  title?: ReactNode;
  /** What stands at the right of the title. */
  aside?: ReactNode;
  children: ReactNode;
  /** Content that reaches the borders, such as a table or a list of rows. */
  flush?: boolean;
  className?: string;
};

/** A titled surface: a region of its own for screen readers. */
export function Card({ title, aside, children, flush = false, className = "" }: Props) {
  const id = useId();
  return (
    <section className={`${css.card} ${className}`} aria-labelledby={title ? id : undefined}>
      {title !== undefined && (
        <header className={css.head}>
          <h2 id={id}>{title}</h2>
          {aside !== undefined && <div className={css.aside}>{aside}</div>}
        </header>
      )}
      <div className={flush ? css.flush : css.body}>{children}</div>
    </section>
  );
}
