import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";

import { problem, shown } from "~/testing/page";

import { DownloadButton } from "./DownloadButton";

it("says that a record could not be saved", async () => {
  shown(
    <DownloadButton contextId="c" form="document">
      Export
    </DownloadButton>,
    { "GET /v1/record/c": () => problem(503) },
  );
  await userEvent.click(screen.getByRole("button", { name: "Export" }));
  expect((await screen.findByRole("alert")).textContent).toContain("Not saved");
});
