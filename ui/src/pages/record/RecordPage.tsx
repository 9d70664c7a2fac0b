import { PageHead } from "~/design";

export default function RecordPage() {
  return <PageHead tab="Record" title="Record" />;
}
