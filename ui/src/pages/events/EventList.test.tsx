import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { EventList, Row } from "./EventList";
import type { Shown } from "./tail";

afterEach(cleanup);

function event(key: string): Shown {
  return {
    key,
    received_at: "2026-11-16T10:00:00Z",
    event: {
      event_id: key,
      event_type: "visit",
      entity_id: "ada",
      timestamp: "2026-11-12T08:30:00Z",
      payload: {},
    },
  };
}

function list(keys: string, isPast = false) {
  const events = keys.split(" ").map(event);
  return <EventList events={events} selected={undefined} onSelect={vi.fn()} isPast={isPast} />;
}

it("keeps the rows in their place while events arrive above them", () => {
  const { rerender } = render(list("b a"));
  const frame = screen.getByRole("listbox");
  frame.scrollTop = 20;
  rerender(list("d c b a"));
  expect(frame.scrollTop).toBe(20 + 2 * 36);

  frame.scrollTop = 0;
  rerender(list("e d c b a"));
  expect(frame.scrollTop).toBe(0);
});

it("shows when past events happened, with the day", () => {
  const row = { top: 0, position: 1, count: 1, isSelected: false, onSelect: vi.fn() };
  render(<Row event={event("a")} isPast {...row} />);
  expect(screen.getByText(/^12 Nov( 2026)? 08:30:00$/)).toBeTruthy();
});
