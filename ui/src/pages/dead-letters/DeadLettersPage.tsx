import { PageHead } from "~/design";

export default function DeadLettersPage() {
  return <PageHead tab="DeadLetters" title="DeadLetters" />;
}
