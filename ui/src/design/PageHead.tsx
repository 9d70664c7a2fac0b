import { useEffect, type ReactNode } from "react";

import css from "./layout.module.css";

type Props = {
  /** The title of the browser's tab. */
  tab: string;
  title: ReactNode;
  subtitle?: ReactNode;
  /** Badges and buttons at the right. */
  actions?: ReactNode;
};

/** The head of a page: what it is about, one line that explains, and its actions. */
export function PageHead({ tab, title, subtitle, actions }: Props) {
  useEffect(() => {
    document.title = `${tab} · Headwater`;
  }, [tab]);
  return (
    <header className={css.head}>
      <div className={css.titles}>
        <h1>{title}</h1>
        {subtitle !== undefined && <p className={css.subtitle}>{subtitle}</p>}
      </div>
      {actions !== undefined && <div className={css.actions}>{actions}</div>}
    </header>
  );
}
