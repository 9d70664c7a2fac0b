import { PageHead } from "~/design";

export default function DoctorPage() {
  return <PageHead tab="Doctor" title="Doctor" />;
}
