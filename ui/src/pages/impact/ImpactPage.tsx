import { PageHead } from "~/design";

export default function ImpactPage() {
  return <PageHead tab="Impact" title="Impact" />;
}
