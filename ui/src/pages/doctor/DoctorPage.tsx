import { useQuery } from "@tanstack/react-query";

import { api, body, type Schema } from "~/api/client";
import {
  Button,
  ButtonLink,
  Card,
  CopyAs,
  Loaded,
  PageHead,
  Skeleton,
  StateIcon,
  type State,
} from "~/design";
import { plural } from "~/design/format";
import { useAllowedPages } from "~/app/allowed";
import { hrefOf } from "~/pages/overview/links";
import { Sentence } from "~/pages/overview/Sentence";

import css from "./Doctor.module.css";

type Finding = Schema<"Finding">;
type Severity = Finding["severity"];

const GROUPS: readonly { severity: Severity; state: State; title: string }[] = [
  { severity: "error", state: "failed", title: "Does not work" },
  { severity: "warning", state: "ageing", title: "Works, but not safely or not for long" },
  { severity: "unknown", state: "unknown", title: "Could not be looked at" },
  { severity: "ok", state: "fresh", title: "In order" },
];

/** Everything that was examined: settings, installation, servers and workload. */
export default function DoctorPage() {
  const examination = useQuery({
    queryKey: ["doctor"],
    queryFn: async ({ signal }) => body(await api.GET("/v1/doctor", { signal })),
    staleTime: 30_000,
  });
  return (
    <>
      <PageHead
        tab="Doctor"
        title={examination.data ? titleOf(examination.data.findings) : "Doctor"}
        subtitle="Settings, installation, servers and workload, each with what was found and the remedy."
        actions={
          <>
            <Button
              busy={examination.isFetching}
              onClick={() => {
                void examination.refetch();
              }}
            >
              Examine again
            </Button>
            <CopyAs call={{ path: "/v1/doctor", cli: ["doctor"], python: "admin.doctor()" }} />
          </>
        }
      />
      <Loaded query={examination} loading={<Loading />}>
        {({ findings }) => (
          <div className={css.groups}>
            {GROUPS.map((group) => (
              <Group
                key={group.severity}
                {...group}
                findings={findings.filter(({ severity }) => severity === group.severity)}
              />
            ))}
          </div>
        )}
      </Loaded>
    </>
  );
}

function titleOf(findings: readonly Finding[]): string {
  const number = (severity: Severity) =>
    findings.filter((finding) => finding.severity === severity).length;
  const errors = number("error");
  const warnings = number("warning");
  if (errors > 0) return `${plural(errors, "thing does", "things do")} not work`;
  if (warnings > 0) return `${plural(warnings, "warning")}, no error`;
  return "Everything is in order";
}

type GroupProps = { state: State; title: string; findings: readonly Finding[] };

function Group({ state, title, findings }: GroupProps) {
  if (findings.length === 0) return null;
  return (
    <Card
      title={
        <span className={css.title}>
          <StateIcon state={state} size={15} /> {title}
        </span>
      }
      aside={plural(findings.length, "check")}
      flush
    >
      <ul className={css.findings}>
        {findings.map((finding, index) => (
          <li key={index}>
            <div className={css.check}>
              <strong>{finding.check}</strong>
              <span>{finding.area}</span>
            </div>
            <div className={css.found}>
              <p>
                <Sentence>{finding.found}</Sentence>
              </p>
              {finding.remedy && (
                <p className={css.remedy}>
                  <span aria-hidden>→ </span>
                  <Sentence>{finding.remedy}</Sentence>
                </p>
              )}
            </div>
            <div className={css.place}>
              {finding.concern ? (
                <Lead concern={finding.concern} />
              ) : (
                <bdi>{finding.looked_at}</bdi>
              )}
            </div>
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** A button to the page that shows a problem. */
function Lead({ concern }: { concern: Schema<"Concern"> }) {
  const pages = useAllowedPages();
  const href = hrefOf(concern.page, concern.params);
  const isElsewhere = concern.page !== "doctor";
  if (!isElsewhere || href === null || !pages.some(({ path }) => path === `/${concern.page}`)) {
    return null;
  }
  return <ButtonLink href={href}>Open</ButtonLink>;
}

function Loading() {
  return (
    <Card title="Examining">
      <Skeleton lines={8} />
    </Card>
  );
}
