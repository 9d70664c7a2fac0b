import { PageHead } from "~/design";

export default function StorePage() {
  return <PageHead tab="Store" title="Store" />;
}
