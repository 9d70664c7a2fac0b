import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";

import { problem, shown } from "~/testing/page";

import { Answers } from "./Answers";
import type { Outcome } from "./model";

const ADD = "POST /v1/context/{id}/outcomes";
const AT = "/v1/context/c1/outcomes";
const ANSWER = {
  context_id: "c1",
  outcome_id: "r1",
  kind: "response",
  at: "2026-11-17T10:00:00Z",
  outcome_hash: "sha256:ab",
  links: {},
  withheld: [],
  redacted: [],
  predicted: 100,
  response: {
    messages: [{ role: "assistant", parts: [{ type: "text", content: "It arrives on Friday." }] }],
    model: "gpt-4o",
    usage: { input: 104, output: 7 },
  },
  score: null,
} as unknown as Outcome;

it("sends a score at once, says that it was not saved, and sends the same one again", async () => {
  const sent: Record<string, unknown>[] = [];
  const stored: object[] = [ANSWER];
  shown(<Answers contextId="c1" known={[ANSWER]} />, {
    "GET /v1/me": () => ({ operations: [ADD] }),
    [`GET ${AT}`]: () => ({ context: "c1", outcomes: stored }),
    [`POST ${AT}`]: async (_, request) => {
      const given = (await request.json()) as Record<string, unknown>;
      sent.push(given);
      if (sent.length === 1) return problem(503);
      stored.push({
        ...ANSWER,
        outcome_id: given.outcome_id,
        kind: "score",
        at: "2026-11-17T10:01:00Z",
        response: null,
        judge: "human",
        actor: "ada",
        score: { name: "helpful", flag: false, explanation: "It names no hour." },
      });
      return {};
    },
  });
  await userEvent.click(await screen.findByRole("button", { name: "Bad" }));
  await userEvent.type(screen.getByLabelText("Why (optional)"), "It names no hour.");
  await userEvent.click(screen.getByRole("button", { name: "Save score" }));

  expect((await screen.findByRole("alert")).textContent).toContain("not saved");
  expect(screen.getByText("It names no hour.")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));

  await expect.poll(() => screen.queryByRole("alert")).toBeNull();
  await screen.findByText("ada");
  expect(screen.getAllByText("It names no hour.")).toHaveLength(1);
  expect(sent).toHaveLength(2);
  expect(sent[1]).toEqual(sent[0]);
  expect(sent[0]).toMatchObject({
    score: "helpful",
    flag: false,
    explanation: "It names no hour.",
    judge: "human",
    links: { answer: "r1" },
  });
});

it("sends a correction that begins with the answer", async () => {
  const sent: Record<string, unknown>[] = [];
  shown(<Answers contextId="c1" known={[ANSWER]} />, {
    "GET /v1/me": () => ({ operations: [ADD] }),
    [`GET ${AT}`]: () => ({ context: "c1", outcomes: [ANSWER] }),
    [`POST ${AT}`]: async (_, request) => {
      sent.push((await request.json()) as Record<string, unknown>);
      return {};
    },
  });
  await userEvent.click(await screen.findByRole("button", { name: "Correct…" }));
  const field: HTMLTextAreaElement = screen.getByLabelText("What it should have answered");
  expect(field.value).toBe("It arrives on Friday.");
  await userEvent.clear(field);
  await userEvent.type(field, "On Monday.");
  await userEvent.click(screen.getByRole("button", { name: "Save correction" }));
  await expect.poll(() => sent).toHaveLength(1);
  expect(sent[0]).toMatchObject({ correction: "On Monday.", links: { answer: "r1" } });
});

it("has no form for a key that may only read", async () => {
  const asked = shown(<Answers contextId="c1" known={[ANSWER]} />, {
    "GET /v1/me": () => ({ operations: [] }),
  });
  await screen.findByText("It arrives on Friday.");
  expect(screen.getByText(/100, billed 104/)).toBeTruthy();
  await expect.poll(() => asked).toContain("GET /v1/me");
  expect(screen.queryByRole("form")).toBeNull();
});
