import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";

import { problem, shown } from "~/testing/page";

import { Found } from "./Found";
import { useRecords } from "./queries";

const TICKS = { ids: [], toggle: () => undefined, clear: () => undefined };

function List() {
  const records = useRecords({ range: "all" });
  return (
    <Found label="Records" place="p" records={records} total={null} ticks={TICKS} nothing="" />
  );
}

const ROW = { context_id: "a", created_at: "2026-11-16T10:00:00Z", name: "support" };

it("asks for a further page that failed only when the reader does", async () => {
  let isBroken = true;
  const asked = shown(<List />, {
    "GET /v1/contexts": (url) => {
      if (!url.searchParams.has("cursor")) return { contexts: [ROW], next_cursor: "more" };
      return isBroken ? problem(422) : { contexts: [], next_cursor: null };
    },
  });

  await screen.findByRole("alert");
  await new Promise((resolve) => setTimeout(resolve, 0));
  expect(asked).toHaveLength(2);

  isBroken = false;
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  await waitFor(() => expect(screen.queryByRole("alert")).toBeNull());
  expect(asked).toHaveLength(3);
});
