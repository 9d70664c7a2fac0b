import { afterEach, expect, it, vi } from "vitest";

import { makeQueryClient } from "~/api/queries";
import { eventually } from "~/testing/eventually";

import { begin } from "./opening";
import { DETAIL_PAGES, PAGES } from "./pages";

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

/** Return the requests and the pages that an address begins with. */
async function begun(path: string): Promise<{ asked: string[]; pages: string[] }> {
  const asked: string[] = [];
  const pages: string[] = [];
  vi.stubGlobal("fetch", (request: Request) => {
    asked.push(new URL(request.url).pathname);
    return Promise.resolve(Response.json({ operations: [] }));
  });
  for (const page of [...PAGES, ...DETAIL_PAGES]) {
    vi.spyOn(page, "load").mockImplementation(() => {
      pages.push(page.path);
      return Promise.reject(new Error("not loaded in this test"));
    });
  }
  begin(makeQueryClient(), path);
  await eventually(() => expect(asked).toContain("/v1/me"));
  return { asked, pages };
}

it("asks for the caller, the page and the record of an address at once", async () => {
  const { asked, pages } = await begun("/ui/records/a%2Fb");
  expect(pages).toEqual(["/records/:id"]);
  await eventually(() => expect(asked).toEqual(["/v1/me", "/context/a%2Fb/explain"]));
});

it("loads the page of an address, and no page for an unknown one", async () => {
  expect(await begun("/ui/")).toEqual({ asked: ["/v1/me"], pages: ["/"] });
  expect(await begun("/ui/lookup")).toEqual({ asked: ["/v1/me"], pages: ["/lookup"] });
  expect(await begun("/ui/no-such-page")).toEqual({ asked: ["/v1/me"], pages: [] });
  expect(await begun("/ui/records/%")).toMatchObject({ pages: ["/records/:id"] });
});
