import { afterEach, expect, it, vi } from "vitest";

import { copyText } from "./clipboard";

afterEach(() => {
  vi.unstubAllGlobals();
  document.body.replaceChildren();
});

it("leaves the focus where it was when a page without TLS copies", async () => {
  vi.stubGlobal("isSecureContext", false);
  const button = document.createElement("button");
  document.body.append(button);
  button.focus();
  Object.assign(document, { execCommand: () => true });
  await copyText("text");
  expect(document.activeElement).toBe(button);
});
