import type { Schema } from "~/api/client";

type Trace = Pick<Schema<"ContextTrace">, "inputs" | "features">;
export type About = { entity: string; entity_id: string };

/** Return the entity that a context is about: one that an input names, or the first one it read. */
export function aboutOf({ inputs, features }: Trace): About | null {
  const given = new Set(Object.values<unknown>(inputs).map(String));
  const read = features.flatMap(({ entity, entity_id }) =>
    entity_id === null ? [] : [{ entity, entity_id }],
  );
  return read.find(({ entity_id }) => given.has(entity_id)) ?? read[0] ?? null;
}
