import { cleanup, createEvent, fireEvent, render, screen } from "@testing-library/react";
import type { ReactElement } from "react";
import { afterEach, expect, it } from "vitest";

import { isTyping } from "./keys";

afterEach(cleanup);

/** Return whether a key that is pressed in an element with a label belongs to it. */
function isOwn(element: ReactElement, options: KeyboardEventInit = {}): boolean {
  render(element);
  const target = screen.getByLabelText("here");
  const event = createEvent.keyDown(target, { key: "j", ...options });
  fireEvent(target, event);
  const found = isTyping(event as KeyboardEvent);
  cleanup();
  return found;
}

const BUTTON = <button aria-label="here" />;

it("leaves the keys of fields, dialogs and menus to them", () => {
  expect(isOwn(<input aria-label="here" />)).toBe(true);
  expect(isOwn(<div role="dialog">{BUTTON}</div>)).toBe(true);
  expect(isOwn(<div role="menu">{BUTTON}</div>)).toBe(true);
  expect(isOwn(BUTTON, { ctrlKey: true })).toBe(true);
});

it("lets keys move in a list after one of its boxes was ticked", () => {
  expect(isOwn(<input type="checkbox" aria-label="here" />)).toBe(false);
  expect(isOwn(BUTTON)).toBe(false);
});
