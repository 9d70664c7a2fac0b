import { useEffect, useState } from "react";

import type { Report } from "@verifier/verify.mjs";

export type Question = { turn: number; text: string; keys: string; expect: string | null };

/** The report of the verifier, or why there is none: not a record, or unusable keys. */
export type Answer =
  | { turn: number; report: Report; verdict: string }
  | { turn: number; problem: string; isDocument: boolean };

type Waiting = { resolve: (answer: Answer) => void; reject: (error: Error) => void };

let worker: Worker | null = null;
let turns = 0;
const waiting = new Map<number, Waiting>();

function started(): Worker {
  if (worker) return worker;
  worker = new Worker(new URL("./verifier.worker.ts", import.meta.url), { type: "module" });
  worker.addEventListener("message", (event: MessageEvent<Answer>) => {
    waiting.get(event.data.turn)?.resolve(event.data);
    waiting.delete(event.data.turn);
  });
  worker.addEventListener("error", (event) => {
    for (const each of waiting.values()) each.reject(new Error(event.message));
    waiting.clear();
    worker = null;
  });
  return worker;
}

/** Verify a document in the browser: nothing is sent anywhere. */
export function verified(text: string, keys = "", expect: string | null = null): Promise<Answer> {
  const turn = (turns += 1);
  return new Promise((resolve, reject) => {
    waiting.set(turn, { resolve, reject });
    started().postMessage({ turn, text, keys, expect } satisfies Question);
  });
}

/** Return the result for a document and some keys; null while it is computed. */
export function useVerified(
  text: string | undefined,
  keys: string,
  expect: string | null,
): Answer | null {
  const [answer, setAnswer] = useState<{ of: string; answer: Answer } | null>(null);
  const question = text === undefined ? null : `${keys}\n${expect ?? ""}\n${text}`;
  useEffect(() => {
    if (text === undefined || question === null) return;
    let isCurrent = true;
    verified(text, keys, expect).then(
      (found) => isCurrent && setAnswer({ of: question, answer: found }),
      (error: unknown) => {
        const problem = error instanceof Error ? error.message : String(error);
        if (isCurrent) setAnswer({ of: question, answer: { turn: 0, problem, isDocument: true } });
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [text, keys, expect, question]);
  return answer !== null && answer.of === question ? answer.answer : null;
}
