import type { ReactNode } from "react";

import css from "./layout.module.css";

type Props = {
  list: ReactNode;
  /** The selected thing; without one the list has the whole width on a phone. */
  detail: ReactNode;
  hasDetail?: boolean;
};

/** A list at the left, the selected thing at the right; on a phone one or the other. */
export function MasterDetail({ list, detail, hasDetail = true }: Props) {
  return (
    <div className={hasDetail ? `${css.split} ${css.open}` : css.split}>
      <div className={css.list}>{list}</div>
      <div className={css.detail}>{detail}</div>
    </div>
  );
}
