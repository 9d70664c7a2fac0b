import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "wouter";

import { declarations } from "~/api/queries";
import { Card, Empty, Loaded, MasterDetail, PageHead, Skeleton } from "~/design";
import { plural } from "~/design/format";

import type { Index } from "./chunks";
import { IndexDetail } from "./IndexDetail";
import { IndexList, RetrieverList, type Retriever } from "./Lists";
import { indexes } from "./queries";
import css from "./Retrievers.module.css";
import { RetrieverDetail } from "./RetrieverDetail";

/** Retrievers and indexes: try a query, and see what is found, how old it is and why. */
export default function RetrieversPage() {
  const declared = useQuery(declarations);
  const stored = useQuery(indexes);
  const subtitle =
    declared.data &&
    stored.data &&
    `${plural(declared.data.retrievers.length, "retriever")} and ${plural(stored.data.length, "index", "indexes")}`;
  return (
    <>
      <PageHead tab="Retrievers" title="Retrievers" subtitle={subtitle} />
      <Loaded query={declared} loading={<Skeleton lines={8} />}>
        {({ retrievers }) => (
          <Loaded query={stored} loading={<Skeleton lines={8} />}>
            {(found) => <Selected retrievers={retrievers} indexes={found} />}
          </Loaded>
        )}
      </Loaded>
    </>
  );
}

type Props = { retrievers: readonly Retriever[]; indexes: readonly Index[] };

function Selected({ retrievers, indexes: found }: Props) {
  const [search, setSearch] = useSearchParams();
  if (retrievers.length === 0 && found.length === 0) return <Nothing />;
  const index = search.get("index");
  const named = search.get("retriever") ?? (index === null ? retrievers[0]?.name : null);
  const retriever = retrievers.find(({ name }) => name === named);
  const status = found.find(({ name }) => name === index);
  const close = () => setSearch({});
  return (
    <MasterDetail
      hasDetail={search.has("retriever") || index !== null}
      list={
        <div className={css.stack}>
          <Card title="Retrievers" flush>
            <RetrieverList
              retrievers={retrievers}
              selected={retriever?.name ?? null}
              onSelect={(name) => setSearch({ retriever: name })}
            />
          </Card>
          <Card title="Indexes" flush>
            <IndexList
              indexes={found}
              selected={index}
              onSelect={(name) => setSearch({ index: name })}
            />
          </Card>
        </div>
      }
      detail={
        retriever !== undefined ? (
          <RetrieverDetail key={retriever.name} retriever={retriever} onClose={close} />
        ) : status !== undefined ? (
          <IndexDetail key={status.name} index={status} onClose={close} />
        ) : (
          <Empty title="Nothing here has this name">
            Choose a retriever or an index from the list.
          </Empty>
        )
      }
    />
  );
}

function Nothing() {
  return (
    <Empty
      title="No retriever and no index is declared"
      command={
        'Index(store, "help")\n\n@retriever(store, index="help")\ndef search_help(question: str): ...'
      }
    >
      Documents are searched by retrievers. Declare an index and a retriever in the features file:
    </Empty>
  );
}
