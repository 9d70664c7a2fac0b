import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, it } from "vitest";

import { shown } from "~/testing/page";

import { Actions } from "./GroupDetail";
import type { Done } from "./DeadLettersPage";

const GROUP = {
  feature: "visits",
  error: "ValueError: N",
  sample: "ValueError: 1",
  count: 40,
  attempts: 3,
  first_failed_at: "2026-11-16T10:00:00Z",
  last_dead_at: "2026-11-16T10:00:00Z",
  event_types: ["visit"],
  ids: [],
};

/** The actions of a group whose ticked letters another person settles meanwhile. */
function Group({ onDone }: { onDone: (done: Done) => void }) {
  const [chosen, setChosen] = useState<readonly string[]>(["1", "2"]);
  return (
    <>
      <Actions group={GROUP} chosen={chosen} onDone={onDone} />
      <input aria-label="Settle elsewhere" onChange={() => setChosen([])} />
    </>
  );
}

it("discards the letters that the dialog names, also when they are gone by then", async () => {
  const bodies: unknown[] = [];
  const results: Done[] = [];
  shown(<Group onDone={(done) => results.push(done)} />, {
    "GET /v1/me": () => ({ operations: ["POST /v1/dead-letters/redrive"] }),
    "POST /v1/dead-letters/discard": async (_, request) => {
      bodies.push(await request.json());
      return { dead_letters: [{ id: "1", outcome: "gone" }] };
    },
  });
  await userEvent.click(await screen.findByRole("button", { name: "Discard 2" }));
  const elsewhere = screen.getByLabelText("Settle elsewhere");
  await userEvent.type(elsewhere, "x");
  await screen.findByRole("button", { name: "Discard all", hidden: true });

  await userEvent.click(await screen.findByRole("button", { name: "Discard 2 letters" }));

  await expect.poll(() => results).toHaveLength(1);
  expect(bodies).toEqual([{ ids: ["1", "2"], partial: true }]);
});
