import type { Schema } from "~/api/client";
import { Button, Choice } from "~/design";
import { useDraft } from "~/design/draft";
import { IdField } from "~/parameters/IdField";

import css from "./Lookup.module.css";

type Props = {
  entities: readonly Schema<"EntityListing">[];
  entity: string;
  id: string;
  onLookUp: (entity: string, id: string) => void;
};

/** The entity to look up: its kind and its id. */
export function EntityForm({ entities, entity, id, onLookUp }: Props) {
  const [chosen, setChosen] = useDraft(entity, entity);
  const [text, setText] = useDraft(id, id);
  const declared = entities.find(({ name }) => name === chosen);
  const options = entities.map(({ name }) => [name, name] as const);
  if (!entities.some(({ name }) => name === chosen) && chosen !== "") {
    options.push([chosen, `${chosen} (not declared)`]);
  }
  return (
    <form
      className={css.form}
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        onLookUp(chosen, text.trim());
      }}
    >
      <Choice label="Entity" value={chosen} onChange={setChosen} options={options} />
      <IdField
        entity={chosen}
        label={declared?.id_field ?? "Id"}
        value={text}
        placeholder={declared?.id_type === "int" ? "42" : "ada"}
        autoFocus={id === ""}
        onChange={(event) => setText(event.target.value)}
      />
      <Button type="submit" look="primary" disabled={text.trim() === ""}>
        Look up
      </Button>
    </form>
  );
}
