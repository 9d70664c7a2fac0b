import type { ButtonHTMLAttributes, ReactNode, Ref } from "react";
import { Link } from "wouter";

import css from "./Button.module.css";

type Look = "plain" | "primary" | "danger" | "quiet";

type Props = ButtonHTMLAttributes<HTMLButtonElement> & {
  look?: Look;
  icon?: ReactNode;
  busy?: boolean;
  ref?: Ref<HTMLButtonElement>;
};

export function Button({
  look = "plain",
  icon,
  busy = false,
  children,
  className = "",
  ...rest
}: Props) {
  return (
    <button
      type="button"
      {...rest}
      disabled={rest.disabled === true || busy}
      aria-busy={busy || undefined}
      className={`${css.button} ${css[look]} ${className}`}
    >
      {icon}
      {children}
    </button>
  );
}

/** A link that looks like a button. */
export function ButtonLink({
  href,
  look = "plain",
  children,
}: {
  href: string;
  look?: Look;
  children: ReactNode;
}) {
  return (
    <Link href={href} className={`${css.button} ${css[look]}`}>
      {children}
    </Link>
  );
}

/** A button with an icon alone; its label is read aloud and shown on hover. */
export function IconButton({ label, children, ...rest }: Omit<Props, "look"> & { label: string }) {
  return (
    <button type="button" title={label} aria-label={label} {...rest} className={css.icon}>
      {children}
    </button>
  );
}
