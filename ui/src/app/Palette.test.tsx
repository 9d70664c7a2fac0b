import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it } from "vitest";

import { shown } from "~/testing/page";

import { Palette } from "./Palette";
import { paletteOpen } from "./sheet";

afterEach(() => {
  paletteOpen.set(false);
  history.replaceState(null, "", "/");
});

function found(name: string | null) {
  const record = { kind: "record", name, description: "", entity: null, index: null, context: "c" };
  return { found: [record], unavailable: [] };
}

it("opens what was found for the whole text, also when Enter is faster than the server", async () => {
  paletteOpen.set(true);
  shown(<Palette />, {
    "GET /v1/me": () => ({ operations: [] }),
    "GET /v1/search": (url) => found(url.searchParams.get("q")),
  });
  const field = await screen.findByRole("combobox");
  await userEvent.type(field, "01a1");
  await screen.findByText("01a1");
  await userEvent.type(field, "e5{Enter}");
  await expect.poll(() => location.pathname).toBe("/records/01a1e5");
});
