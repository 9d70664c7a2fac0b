import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "wouter";

import { declarations } from "~/api/queries";
import { useCan } from "~/api/me";
import {
  ButtonLink,
  Card,
  CopyAs,
  Dim,
  Empty,
  Loaded,
  MasterDetail,
  PageHead,
  Skeleton,
  UserText,
  useNow,
  type Call,
} from "~/design";
import { plural } from "~/design/format";
import { gridsOf } from "~/windows";

import { EntityForm } from "./EntityForm";
import { FeatureDetail } from "./FeatureDetail";
import { FamilyCard } from "./FamilyCard";
import css from "./Lookup.module.css";
import { entityValues, type EntityValue } from "./queries";
import { ValuesTable } from "./ValuesTable";
import { hasNothingStored, summary } from "./values";

/** An entity: all its values with age; one value: its history and the events behind it. */
export default function LookupPage() {
  const [search, setSearch] = useSearchParams();
  const { data: declared } = useQuery(declarations);
  const entity = search.get("entity") ?? declared?.entities[0]?.name ?? "";
  const id = search.get("id") ?? "";
  return (
    <>
      <Head entity={entity} id={id} />
      <EntityForm
        entities={declared?.entities ?? []}
        entity={entity}
        id={id}
        onLookUp={(chosen, of) => setSearch({ entity: chosen, ...(of === "" ? {} : { id: of }) })}
      />
      {id === "" ? <Start entity={entity} /> : <Values entity={entity} id={id} />}
    </>
  );
}

/** What to do on a page without an entity. */
function Start({ entity }: { entity: string }) {
  const { data } = useQuery(declarations);
  if (data?.entities.length === 0) {
    return (
      <Empty title="No entity is declared" command="headwater init">
        A features file declares entities and their features; this command writes a first one.
      </Empty>
    );
  }
  const readable = data?.features.find((each) => each.entity === entity && each.windows === null);
  const example = readable?.name ?? "total_spend";
  return (
    <Empty title="Whose values?" command={`headwater features get ${example} ada`}>
      Enter the id of an entity above. The page then shows every feature of it, with age, source and
      history. On the command line, one value is read like this:
    </Empty>
  );
}

function Head({ entity, id }: { entity: string; id: string }) {
  const query = useQuery(entityValues(entity, id));
  const maySeeRecords = useCan("GET /v1/contexts/by-provenance");
  const now = useNow();
  if (id === "") {
    return (
      <PageHead
        tab="Lookup"
        title="Lookup"
        subtitle="What does every feature say about one entity, and how fresh is it?"
      />
    );
  }
  const values = query.data?.values;
  const impact = `/impact?${new URLSearchParams({ entity, entity_id: id }).toString()}`;
  return (
    <PageHead
      tab={`${id} · Lookup`}
      title={
        <>
          <Dim>{entity}</Dim> <UserText>{id}</UserText>
        </>
      }
      subtitle={
        values && (
          <>
            {plural(values.length, "feature")}: {summary(values, now)}.
            {hasNothingStored(values) && " Nothing is stored for this id; is it spelled right?"}
          </>
        )
      }
      actions={
        <>
          {maySeeRecords && <ButtonLink href={impact}>Who saw it</ButtonLink>}
          <CopyAs call={callOf(entity, id)} />
        </>
      }
    />
  );
}

function callOf(entity: string, id: string): Call {
  return { path: `/v1/entities/${encodeURIComponent(entity)}/${encodeURIComponent(id)}` };
}

function Values({ entity, id }: { entity: string; id: string }) {
  const [search, setSearch] = useSearchParams();
  const query = useQuery(entityValues(entity, id));
  const name = search.get("feature");
  const select = (feature: string | null) =>
    setSearch((before) => {
      const after = new URLSearchParams(before);
      if (feature === null) after.delete("feature");
      else after.set("feature", feature);
      return after;
    });
  return (
    <Loaded query={query} loading={<Skeleton lines={8} />}>
      {({ values }) => {
        if (values.length === 0) {
          return (
            <Empty title="This entity has no features">
              Declare one with <code>@feature(entity={entity}, …)</code>.
            </Empty>
          );
        }
        const selected = values.find(({ feature }) => feature === name);
        const list = (
          <Lists
            entity={entity}
            values={values}
            selected={name}
            onSelect={select}
            wide={selected === undefined}
          />
        );
        if (selected === undefined) return list;
        return (
          <MasterDetail
            list={list}
            detail={
              <FeatureDetail
                key={selected.feature}
                entity={entity}
                id={id}
                value={selected}
                onClose={() => select(null)}
              />
            }
          />
        );
      }}
    </Loaded>
  );
}

type ListsProps = {
  entity: string;
  values: readonly EntityValue[];
  selected: string | null;
  onSelect: (feature: string) => void;
  wide: boolean;
};

/** One table for plain features, and one for each family of windows. */
function Lists({ entity, values, selected, onSelect, wide }: ListsProps) {
  const { data: declared } = useQuery(declarations);
  const features = declared?.features.filter((feature) => feature.entity === entity) ?? [];
  const windows = new Map(features.map(({ name, window }) => [name, window?.family]));
  const units = new Map(features.map(({ name, unit }) => [name, unit]));
  const plain = values.filter(({ feature }) => !windows.get(feature));
  return (
    <div className={css.stack}>
      {plain.length > 0 && (
        <Card title="Values" aside={<Dim>choose one for its history</Dim>} flush>
          <ValuesTable
            values={plain}
            units={units}
            selected={selected}
            onSelect={onSelect}
            wide={wide}
          />
        </Card>
      )}
      <div className={wide ? css.families : css.stack}>
        {gridsOf(features).map((grid) => (
          <FamilyCard
            key={grid.name}
            grid={grid}
            units={units}
            values={values.filter(({ feature }) => windows.get(feature) === grid.name)}
            selected={selected}
          />
        ))}
      </div>
    </div>
  );
}
