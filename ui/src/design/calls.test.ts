import { expect, it } from "vitest";

import { asCli, asCurl, asPython, pythonValue, quoted } from "./calls";

const ORIGIN = "http://127.0.0.1:8000";

it("quotes words that a shell would change", () => {
  expect(quoted("total_spend")).toBe("total_spend");
  expect(quoted("it's $HOME")).toBe(`'it'\\''s $HOME'`);
});

it("writes a request as curl", () => {
  expect(asCurl({ path: "/v1/features/total_spend?entity_id=ada" }, ORIGIN)).toBe(
    `curl -s -H "X-API-Key: $HEADWATER_CLIENT_KEY" 'http://127.0.0.1:8000/v1/features/total_spend?entity_id=ada'`,
  );
  expect(asCurl({ method: "POST", path: "/ingest/x", body: { a: "b'" } }, ORIGIN)).toContain(
    `-d '{"a":"b'\\''"}'`,
  );
});

it("leaves out what has no such notation", () => {
  expect(asCli({ path: "/" }, ORIGIN)).toBeNull();
  expect(asPython({ path: "/" }, ORIGIN)).toBeNull();
  expect(asCli({ path: "/", cli: ["features", "get", "a b"] }, ORIGIN)).toBe(
    "headwater features get 'a b' --url http://127.0.0.1:8000",
  );
});

it("writes code that runs as it is", () => {
  const python = 'list_contexts(start=datetime.fromisoformat("2026-01-01T00:00:00.000Z"))';
  expect(asPython({ path: "/", python, imports: ["from datetime import datetime"] }, ORIGIN)).toBe(
    [
      "from datetime import datetime",
      "",
      "from headwater.client import Client",
      "",
      'with Client("http://127.0.0.1:8000") as client:',
      `    answer = client.${python}`,
    ].join("\n"),
  );
});

it("writes JSON as a literal of Python", () => {
  expect(pythonValue({ a: [true, null, "x"], b: 1.5 })).toBe('{"a": [True, None, "x"], "b": 1.5}');
});
