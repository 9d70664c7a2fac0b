import { beforeEach, describe, expect, it } from "vitest";

import { grouped, recent, remember, targetOf, type Found, type Target } from "./found";

const found = (fields: Partial<Found>): Found => ({
  kind: "feature",
  name: "total_spend",
  match: "exact",
  description: "",
  entity: null,
  index: null,
  context: null,
  record_hash: null,
  created_at: null,
  ...fields,
});

const target = (kind: Target["kind"], name: string): Target => ({
  kind,
  name,
  href: `/${kind}/${name}`,
  detail: "",
});

beforeEach(() => sessionStorage.clear());

describe("what was found", () => {
  it.each([
    [found({ entity: "User" }), "/store?card=feature%3Atotal_spend", "User"],
    [
      found({ kind: "entity_id", name: "a&b/c", entity: "User" }),
      "/lookup?entity=User&id=a%26b%2Fc",
      "User",
    ],
    [found({ kind: "record", name: "01a1", context: "support" }), "/records/01a1", "support"],
    [
      found({ kind: "document", name: "how to?", index: "help" }),
      "/impact?document=how+to%3F&index=help",
      "in help",
    ],
    [
      found({ kind: "context", name: "support", description: "For agents." }),
      "/store?card=context%3Asupport",
      "For agents.",
    ],
  ])("leads to its page", (thing, href, detail) => {
    expect(targetOf(thing)).toMatchObject({ href, detail });
  });

  it("is grouped, and the group of the best match is first", () => {
    const groups = grouped([
      target("context", "spend"),
      target("feature", "total_spend"),
      target("index", "spending"),
      target("context", "spent"),
      target("page", "Store"),
    ]);
    expect(groups.map(([title, each]) => [title, each.length])).toEqual([
      ["Contexts", 2],
      ["Features", 1],
      ["Retrievers and indexes", 1],
      ["Pages", 1],
    ]);
    expect(grouped([])).toEqual([]);
  });
});

describe("recent targets", () => {
  it("are the last ones, each once", () => {
    for (const name of ["a", "b", "c", "d", "e", "f", "g", "b"]) remember(target("feature", name));
    expect(recent().map(({ name }) => name)).toEqual(["b", "g", "f", "e", "d", "c"]);
  });

  it("are none if the storage is damaged", () => {
    sessionStorage.setItem("headwater.recent", "{broken");
    expect(recent()).toEqual([]);
  });
});
