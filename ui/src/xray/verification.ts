import { useEffect, useState } from "react";

import type { Report } from "@verifier/verify.mjs";

type Asked = { text: string; keys: string; expect: string | null };
export type Question = Asked & { turn: number };

/** The report of the verifier, or why there is none: not a record, or unusable keys. */
export type Answer =
  | { turn: number; report: Report; verdict: string }
  | { turn: number; problem: string; isDocument: boolean };

type Waiting = { resolve: (answer: Answer) => void; reject: (error: Error) => void };

let worker: Worker | null = null;
let turns = 0;
/** The last question, which the badge and the ladder of a record both ask. */
let last: (Asked & { answer: Promise<Answer> }) | null = null;
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
    last = null;
  });
  return worker;
}

/** Verify a document in the browser: nothing is sent anywhere. */
function verified(text: string, keys = "", expect: string | null = null): Promise<Answer> {
  if (isSame(last, { text, keys, expect })) return last.answer;
  const turn = (turns += 1);
  const answer = new Promise<Answer>((resolve, reject) => {
    waiting.set(turn, { resolve, reject });
    started().postMessage({ turn, text, keys, expect } satisfies Question);
  });
  last = { text, keys, expect, answer };
  return answer;
}

type Sought = Omit<Asked, "text"> & { text: string | undefined };

function isSame<T extends Asked>(known: T | null, { text, keys, expect }: Sought): known is T {
  return known?.text === text && known?.keys === keys && known.expect === expect;
}

/** Return the result for a document and some keys; null while it is computed. */
export function useVerified(
  text: string | undefined,
  keys: string,
  expect: string | null,
): Answer | null {
  const [found, setFound] = useState<(Asked & { answer: Answer }) | null>(null);
  useEffect(() => {
    if (text === undefined) return;
    let isCurrent = true;
    const show = (answer: Answer) => isCurrent && setFound({ text, keys, expect, answer });
    verified(text, keys, expect).then(show, (error: unknown) => {
      const problem = error instanceof Error ? error.message : String(error);
      show({ turn: 0, problem, isDocument: true });
    });
    return () => {
      isCurrent = false;
    };
  }, [text, keys, expect]);
  return isSame(found, { text, keys, expect }) ? found.answer : null;
}
