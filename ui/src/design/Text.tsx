import type { ReactNode } from "react";

import css from "./text.module.css";

/** Text from outside: isolated from the direction of the page, broken anywhere, never markup. */
export function UserText({ children, mono = false }: { children: string; mono?: boolean }) {
  return (
    <bdi dir="auto" className={mono ? `${css.user} ${css.mono}` : css.user}>
      {children}
    </bdi>
  );
}

export function Mono({ children }: { children: ReactNode }) {
  return <span className={css.mono}>{children}</span>;
}

export function Dim({ children }: { children: ReactNode }) {
  return <span className={css.dim}>{children}</span>;
}

/** What a value is counted in, after a space; nothing if that is not declared. */
export function Unit({ children }: { children: string | undefined }) {
  if (!children) return null;
  return (
    <>
      {" "}
      <bdi dir="auto" className={css.unit}>
        {children}
      </bdi>
    </>
  );
}

/** A number in tabular figures. */
export function Amount({ children }: { children: ReactNode }) {
  return <span className={css.number}>{children}</span>;
}
