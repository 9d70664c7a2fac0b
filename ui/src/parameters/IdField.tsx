import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useId, type ComponentProps } from "react";

import { api, body } from "~/api/client";
import { useCan } from "~/api/me";
import { Field } from "~/design";

type Props = ComponentProps<typeof Field> & {
  value: string;
  /** The kind of entity that the id is of; without one, ids of all are suggested. */
  entity?: string | undefined;
};

/** A field for the id of an entity, which suggests ids that begin like what was typed. */
export function IdField({ entity, ...rest }: Props) {
  const list = useId();
  return (
    <>
      <Field {...rest} list={list} />
      <datalist id={list}>
        {useIds(rest.value, entity).map((id) => (
          <option key={id} value={id} />
        ))}
      </datalist>
    </>
  );
}

function useIds(typed: string, entity: string | undefined): string[] {
  const [q] = useDebouncedValue(typed.trim(), 150);
  const mayRead = useCan("GET /v1/entities/{entity}/{entity_id}");
  const { data } = useQuery({
    queryKey: ["ids", q],
    queryFn: async ({ signal }) =>
      body(await api.GET("/v1/search", { params: { query: { q, kind: "entity_id" } }, signal })),
    enabled: mayRead && q !== "",
    placeholderData: keepPreviousData,
    staleTime: 30_000,
  });
  const ids = (data?.found ?? []).filter((each) => !entity || each.entity === entity);
  return [...new Set(ids.map(({ name }) => name))].filter((id) => id !== typed);
}
