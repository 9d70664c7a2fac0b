import { screen } from "@testing-library/react";
import { expect, it } from "vitest";

import { shown } from "~/testing/page";

import { Health } from "./Health";

it("says that a server is not ready to a key that may not see the overview", async () => {
  shown(<Health />, {
    "GET /v1/me": () => ({ operations: [] }),
    "GET /readyz": () => Response.json({ status: "not ready", parts: [] }, { status: 503 }),
  });
  expect(await screen.findByLabelText("Health: not ready")).toBeTruthy();
});
