import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, it } from "vitest";

import { eventually } from "~/testing/eventually";
import { shown } from "~/testing/page";

import { EntityForm } from "./EntityForm";

const USER = { name: "User", id_field: "user_id", id_type: "str", belongs_to: {}, description: "" };

/** The page: entities arrive late, and the address keeps what was looked up. */
function Page() {
  const [entities, setEntities] = useState<(typeof USER)[]>([]);
  const [id, setId] = useState("");
  return (
    <>
      <button onClick={() => setEntities([USER])}>arrive</button>
      <button onClick={() => setId("grace")}>go back</button>
      <EntityForm
        entities={entities}
        entity={entities[0]?.name ?? ""}
        id={id}
        onLookUp={(_, chosen) => setId(chosen)}
      />
    </>
  );
}

it("keeps what was typed before the entities arrive, and the focus after a look-up", async () => {
  shown(<Page />, {});
  await userEvent.type(screen.getByLabelText("Id"), "ada");
  await userEvent.click(screen.getByRole("button", { name: "arrive" }));
  const field = screen.getByLabelText<HTMLInputElement>("user_id");
  expect(field.value).toBe("ada");

  await userEvent.type(field, "{Enter}");
  expect(document.activeElement).toBe(field);

  await userEvent.click(screen.getByRole("button", { name: "go back" }));
  expect(field.value).toBe("grace");
});

it("suggests the ids of the chosen entity that begin like what was typed", async () => {
  shown(<Page />, {
    "GET /v1/me": () => ({ operations: ["GET /v1/entities/{entity}/{entity_id}"] }),
    "GET /v1/search": (url) => ({
      found: [
        { name: `${url.searchParams.get("q")}a`, entity: "User" },
        { name: "ad-7", entity: "Order" },
      ],
    }),
  });
  await userEvent.click(screen.getByRole("button", { name: "arrive" }));
  await userEvent.type(screen.getByLabelText("user_id"), "ad");
  const suggested = () =>
    [...document.querySelectorAll<HTMLOptionElement>("datalist option")].map(({ value }) => value);
  await eventually(() => expect(suggested()).toEqual(["ada"]));
});
