import createClient, { type Middleware } from "openapi-fetch";

import { SERVER } from "./address";
import { problemOf, UnreachableError } from "./problems";
import type { components, paths } from "@client/schema";
import { currentKey } from "./session";

/** A type of the API's document, by name: `Schema<"ContextTrace">`. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

/** Send a request with the key of this session; raise a problem for every failure. */
async function send(request: Request): Promise<Response> {
  const key = currentKey();
  if (key !== null) request.headers.set("X-API-Key", key);
  let response: Response;
  try {
    response = await fetch(request);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new UnreachableError(error);
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

/** Ask for a path of the server outside of the typed routes, such as a file or a stream. */
export function requested(path: string, init: RequestInit = {}): Promise<Response> {
  return send(new Request(SERVER + path, init));
}

/** Return whether the server answers at all, also with a failure. */
export async function isReachable(): Promise<boolean> {
  try {
    await requested("/healthz");
    return true;
  } catch (error) {
    return !(error instanceof UnreachableError);
  }
}

const jsonOnly: Middleware = {
  onRequest({ request }) {
    if (!request.headers.has("Accept")) request.headers.set("Accept", "application/json");
    return request;
  },
};

/** The typed routes of the server that serves this page. */
export const api = createClient<paths>({ baseUrl: SERVER, fetch: send });
api.use(jsonOnly);

/** Return the body of a successful answer: `body(await api.GET("/v1/me"))`. */
export function body<T>(answer: { data?: T }): T {
  return answer.data as T;
}
