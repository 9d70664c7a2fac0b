import { screen } from "@testing-library/react";
import { expect, it } from "vitest";

import { shown } from "~/testing/page";

import { useMayOpen } from "./allowed";

function Openable() {
  const mayOpen = useMayOpen();
  const addresses = [
    "/records/a",
    "/records?name=support",
    "/lookup?id=ada",
    "/verify",
    "/nowhere",
  ];
  return <p>{addresses.filter(mayOpen).join(" ")}</p>;
}

it("tells which addresses the key of the session may open", async () => {
  shown(<Openable />, { "GET /v1/me": () => ({ operations: ["GET /v1/contexts"] }) });
  expect(await screen.findByText("/records/a /records?name=support /verify")).toBeTruthy();
});
