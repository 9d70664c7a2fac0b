import { PageHead } from "~/design";

export default function PlaygroundPage() {
  return <PageHead tab="Playground" title="Playground" />;
}
