/** Downloads of a record: the document that verifiers read, its core, and forms for people. */
import { queryOptions } from "@tanstack/react-query";

import { requested } from "~/api/client";
import { save } from "~/design/save";

import { toYaml } from "./yaml";

export type Form = "document" | "json" | "yaml" | "core";

/** The document of a record as text: its bytes are what is verified. */
export const recordText = (contextId: string) =>
  queryOptions({
    queryKey: ["record", contextId],
    queryFn: async ({ signal }) =>
      (await requested(`/v1/record/${path(contextId)}`, { signal })).text(),
    staleTime: 60_000,
  });

/** Save a record as a file. */
export async function download(contextId: string, form: Form): Promise<void> {
  const [content, ending] = await fileOf(contextId, form);
  save(content, `${contextId}.${ending}`);
}

async function fileOf(contextId: string, form: Form): Promise<[Blob, ending: string]> {
  const at = `/v1/record/${path(contextId)}`;
  if (form === "core") return [await (await requested(`${at}?part=core`)).blob(), "core.json"];
  if (form === "document") return [await (await requested(at)).blob(), "json"];
  const explained = await (await requested(`/context/${path(contextId)}/explain`)).text();
  const value = JSON.parse(explained) as unknown;
  const text = form === "json" ? `${JSON.stringify(value, null, 2)}\n` : toYaml(value);
  return [new Blob([text], { type: `application/${form}` }), `explained.${form}`];
}

const path = encodeURIComponent;
