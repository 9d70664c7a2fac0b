import { afterEach, expect, it, vi } from "vitest";

afterEach(() => {
  history.replaceState(null, "", "/");
  vi.resetModules();
});

it("asks for files and streams under the prefix of a proxy", async () => {
  history.replaceState(null, "", "/tools/ui/events");
  vi.resetModules();
  const { requested } = await import("./client");
  const asked: string[] = [];
  vi.stubGlobal("fetch", (request: Request) => {
    asked.push(new URL(request.url).pathname);
    return Promise.resolve(new Response());
  });
  await requested("/v1/events/tail");
  expect(asked).toEqual(["/tools/v1/events/tail"]);
});
