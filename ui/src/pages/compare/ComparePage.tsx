import { PageHead } from "~/design";

export default function ComparePage() {
  return <PageHead tab="Compare" title="Compare" />;
}
