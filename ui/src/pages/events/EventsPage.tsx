import { PageHead } from "~/design";

export default function EventsPage() {
  return <PageHead tab="Events" title="Events" />;
}
