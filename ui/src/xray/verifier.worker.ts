/** Runs the independent verifier off the page's thread, so that a large record freezes nothing. */
import { DocumentError, verdict, verify } from "@verifier/verify.mjs";

import type { Answer, Question } from "./verification";

self.addEventListener("message", (event: MessageEvent<Question>) => {
  const { turn, text, keys, expect } = event.data;
  // A key that did not sign the record leaves the signature unchecked: nothing is wrong with it.
  verify(text, { keys, expect, signed: false }).then(
    (report) => answer({ turn, report, verdict: verdict(report) }),
    (error: unknown) => {
      const problem = error instanceof Error ? error.message : String(error);
      answer({ turn, problem, isDocument: !(error instanceof DocumentError) });
    },
  );
});

function answer(message: Answer): void {
  self.postMessage(message);
}
