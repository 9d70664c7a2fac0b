import { PageHead } from "~/design";

export default function RecordsPage() {
  return <PageHead tab="Records" title="Records" />;
}
