import { PageHead } from "~/design";

export default function RetrieversPage() {
  return <PageHead tab="Retrievers" title="Retrievers" />;
}
