import { PageHead } from "~/design";

export default function OverviewPage() {
  return <PageHead tab="Overview" title="Overview" />;
}
