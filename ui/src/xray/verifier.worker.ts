/** Runs the independent verifier off the page's thread, so that a large record freezes nothing. */
import { DocumentError, verdict, verify } from "@verifier/verify.mjs";

import type { Answer, Question } from "./verification";

self.addEventListener("message", (event: MessageEvent<Question>) => {
  const { turn, text, keys, expect } = event.data;
  verify(text, { keys, expect }).then(
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
