import { PageHead } from "~/design";

export default function LookupPage() {
  return <PageHead tab="Lookup" title="Lookup" />;
}
