import { useState } from "react";

import type { Schema } from "~/api/client";
import { useAllowedPages } from "~/app/allowed";
import { Button, ButtonLink, Card, Code, Dim, StateIcon, Time } from "~/design";
import { plural } from "~/design/format";

import { hrefOf } from "./links";
import css from "./Overview.module.css";
import { Sentence } from "./Sentence";

type Finding = Schema<"OverviewFinding">;

const SHOWN = 4;
// Pages on which the next step can be taken; elsewhere the remedy says what it is.
const LEADS = new Set(["dead-letters", "records"]);
const VERBS: Record<string, string> = { "dead-letters": "Review" };

/** What needs attention, the worst first, each with the page that shows it. */
export function Findings({ findings, isNew }: { findings: readonly Finding[]; isNew: boolean }) {
  const [showsAll, showAll] = useState(false);
  const shown = showsAll ? findings : findings.slice(0, SHOWN);
  return (
    <Card
      title="Look at these first"
      aside={findings.length > 0 && plural(findings.length, "finding")}
      flush
    >
      {findings.length === 0 && (isNew ? <FirstEvent /> : <Nothing />)}
      <ul className={css.findings}>
        {shown.map((finding, index) => (
          <Row key={`${index} ${finding.check} ${finding.subject}`} finding={finding} />
        ))}
      </ul>
      {findings.length > SHOWN && (
        <div className={css.more}>
          <Button look="quiet" onClick={() => showAll(!showsAll)} aria-expanded={showsAll}>
            {showsAll ? "Show fewer" : `Show ${findings.length - SHOWN} more`}
          </Button>
        </div>
      )}
    </Card>
  );
}

function Row({ finding }: { finding: Finding }) {
  const pages = useAllowedPages();
  const href = hrefOf(finding.page, finding.params);
  const isAllowed = pages.some(({ path }) => path === `/${finding.page}`);
  return (
    <li className={css.finding}>
      <StateIcon state={finding.severity === "error" ? "failed" : "ageing"} size={16} />
      <div className={css.what}>
        <p>
          <span className="visually-hidden">{finding.severity}: </span>
          <strong>
            <bdi>{finding.subject}</bdi>
          </strong>{" "}
          <Sentence>{finding.summary}</Sentence>
        </p>
        {finding.detail !== "" && (
          <p className={css.detail}>
            <Sentence>{finding.detail}</Sentence>
          </p>
        )}
        {finding.remedy !== "" && (finding.severity === "error" || !LEADS.has(finding.page)) && (
          <p className={css.remedy}>
            <span aria-hidden>→ </span>
            <Sentence>{finding.remedy}</Sentence>
          </p>
        )}
      </div>
      <div className={css.where}>
        {href !== null && isAllowed && (
          <ButtonLink href={href}>{VERBS[finding.page] ?? "Open"}</ButtonLink>
        )}
        {finding.since !== null && (
          <Dim>
            <Time at={finding.since} />
          </Dim>
        )}
      </div>
    </li>
  );
}

function Nothing() {
  return (
    <p className={css.nothing}>
      <StateIcon state="fresh" size={16} /> Nothing needs attention.
    </p>
  );
}

function FirstEvent() {
  return (
    <div className={css.first}>
      <p>Publish an event about an entity, and watch its features change:</p>
      <Code text="headwater events publish TYPE ID KEY=VALUE" />
    </div>
  );
}
