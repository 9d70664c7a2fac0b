import { screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import { shown } from "~/testing/page";

import { Forbidden } from "./Forbidden";
import { PAGES } from "./pages";

const [records] = PAGES.filter(({ path }) => path === "/records");

function shownTo(scopes: readonly string[]): void {
  shown(<>{records && <Forbidden page={records} />}</>, {
    "GET /v1/me": () => ({ name: "web", scopes, operations: [] }),
    "GET /openapi.json": () => ({ paths: { "/v1/contexts": { get: { "x-scope": "records" } } } }),
  });
}

describe("a page that a key may not see", () => {
  it("names the scope, and the command for a key that has it", async () => {
    shownTo(["read"]);
    await screen.findByText("headwater keys create NAME --scope read --scope records");
    expect(screen.getByText(/the key/).textContent).toContain("Records needs the scope records");
  });

  it("names no scope that the key has already", async () => {
    shownTo(["records"]);
    expect(await screen.findByText(/without limits/)).toBeTruthy();
    expect(screen.queryByText(/keys create/)).toBeNull();
  });
});
