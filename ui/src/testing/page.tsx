/** Shows a part of the UI in a test, with a server that answers as the test says. */
import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render } from "@testing-library/react";
import type { ReactElement } from "react";
import { vi } from "vitest";

import { makeQueryClient } from "~/api/queries";

import "./eventually";

/** An answer by the method and path of the request: a JSON value, or a response. */
type Answers = Readonly<Record<string, (url: URL, request: Request) => unknown>>;

/** Return an answer that is a failure. */
export function problem(status: number): Response {
  return Response.json({ type: "about:blank", title: `Status ${status}`, status }, { status });
}

/** Render an element; requests without an answer get the status 404. Return what was asked. */
export function shown(element: ReactElement, answers: Answers): string[] {
  cleanup(); // of the test before: files share a document
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    const url = new URL(request.url);
    const name = `${request.method} ${url.pathname}`;
    asked.push(name);
    const answer = (await answers[name]?.(url, request)) ?? problem(404);
    return answer instanceof Response ? answer : Response.json(answer);
  });
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={makeQueryClient()}>{element}</QueryClientProvider>
    </MantineProvider>,
  );
  return asked;
}
