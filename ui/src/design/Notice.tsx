import { IconPlugConnectedX } from "@tabler/icons-react";
import type { ReactNode } from "react";

import { ProblemError, UnreachableError } from "~/api/problems";

import { Button } from "./Button";
import { Code } from "./Code";
import css from "./Notice.module.css";
import { StateIcon } from "./State";

type EmptyProps = {
  title: string;
  children?: ReactNode;
  command?: string;
  action?: ReactNode;
};

/** A page without data teaches the next command. */
export function Empty({ title, children, command, action }: EmptyProps) {
  return (
    <div className={css.notice}>
      <h2>{title}</h2>
      {children !== undefined && <p>{children}</p>}
      {command !== undefined && <Code text={command} />}
      {action}
    </div>
  );
}

/** What failed, what it means and what to do. */
export function ErrorPanel({ error, retry }: { error: unknown; retry?: () => void }) {
  const { title, meaning, request } = explained(error);
  return (
    <div className={css.notice} role="alert">
      <h2 className={css.title}>
        {error instanceof UnreachableError ? (
          <IconPlugConnectedX size={16} aria-hidden />
        ) : (
          <StateIcon state="failed" size={16} />
        )}
        {title}
      </h2>
      <p>
        <bdi>{meaning}</bdi>
      </p>
      {request !== undefined && <p className={css.request}>Request {request}</p>}
      {retry !== undefined && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

/** Return the words for a failure. */
export function explained(error: unknown): { title: string; meaning: string; request?: string } {
  if (error instanceof ProblemError) {
    const { title, detail, request_id } = error.problem;
    return {
      title,
      meaning: detail ?? "The server gave no reason.",
      ...(request_id === undefined ? {} : { request: request_id }),
    };
  }
  if (error instanceof UnreachableError) {
    return {
      title: "The server does not answer",
      meaning:
        "Nothing was lost: events wait in the log. Check that headwater serve runs, then try again.",
    };
  }
  return {
    title: "This page failed",
    meaning: error instanceof Error ? error.message : String(error),
  };
}
