import { QueryObserver, type QueryClient } from "@tanstack/react-query";
import { afterEach, describe, expect, it, vi } from "vitest";

import { eventually } from "~/testing/eventually";

import { ProblemError, UnreachableError } from "./problems";
import { makeQueryClient, me } from "./queries";

const stops: (() => void)[] = [];

afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

/** Show a query on a page: its answers come from a list, and the last one is repeated. */
function shown(client: QueryClient, name: string, answers: (string | Error)[]) {
  const asked = vi.fn(() => {
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  });
  const observer = new QueryObserver(client, { queryKey: [name], queryFn: asked, retry: false });
  stops.push(observer.subscribe(() => undefined));
  return { observer, asked, result: () => observer.getCurrentResult() };
}

describe("the server comes back", () => {
  it("reads again what failed while it was away, and nothing else", async () => {
    const client = makeQueryClient();
    const away = new UnreachableError(null);
    const broken = shown(client, "broken", [
      new ProblemError({ type: "about:blank", title: "Broken", status: 500 }),
    ]);
    await eventually(() => expect(broken.result().isError).toBe(true));
    const card = shown(client, "card", [away, "read"]);
    const poll = shown(client, "poll", [away, "ready"]);
    await eventually(() => expect(poll.result().isError).toBe(true));
    await eventually(() => expect(card.result().isError).toBe(true));

    await poll.observer.refetch();

    await eventually(() => expect(card.result().data).toBe("read"));
    expect(card.asked).toHaveBeenCalledTimes(2);
    expect(broken.asked).toHaveBeenCalledTimes(1);
  });

  it("reads again what failed after an answer that is a refusal too", async () => {
    const client = makeQueryClient();
    const refusal = new ProblemError({ type: "about:blank", title: "Forbidden", status: 403 });
    const card = shown(client, "card", [new UnreachableError(null), "read"]);
    await eventually(() => expect(card.result().isError).toBe(true));

    shown(client, "poll", [refusal]);

    await eventually(() => expect(card.result().data).toBe("read"));
  });
});

it("asks who the caller is when the key of the session is refused", async () => {
  const client = makeQueryClient();
  client.setQueryData(me.queryKey, {} as never);
  shown(client, "card", [
    new ProblemError({ type: "about:blank", title: "Unauthorized", status: 401 }),
  ]);
  await eventually(() => expect(client.getQueryState(me.queryKey)?.isInvalidated).toBe(true));
});
