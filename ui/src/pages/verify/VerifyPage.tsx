import { PageHead } from "~/design";

export default function VerifyPage() {
  return <PageHead tab="Verify" title="Verify" />;
}
