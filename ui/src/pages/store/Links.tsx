import type { Schema } from "~/api/client";
import { useCan } from "~/api/me";
import { ButtonLink } from "~/design";

import css from "./StorePage.module.css";

/** Where to go on from a declaration; pages that the key may not use are absent. */
export function Links({ card }: { card: Schema<"DeclarationCard"> }) {
  const can = {
    lookup: useCan("GET /v1/entities/{entity}/{entity_id}"),
    playground: useCan("POST /v1/contexts/{name}"),
    records: useCan("GET /v1/contexts"),
    impact: useCan("GET /v1/contexts/by-provenance"),
    retrievers: useCan("GET /v1/indexes"),
    events: useCan("GET /v1/events"),
  };
  const name = encodeURIComponent(card.name);
  const links: (readonly [href: string, label: string, isAllowed: boolean])[] = [];
  if (card.feature) {
    const entity = encodeURIComponent(card.feature.entity);
    links.push([`/lookup?entity=${entity}&feature=${name}`, "Look up values", can.lookup]);
    // A family has no value of its own that a context could have seen.
    const isRead = can.impact && card.feature.windows === null;
    links.push([`/impact?feature=${name}`, "Who saw it", isRead]);
  }
  if (card.context) {
    links.push([`/playground?context=${name}`, "Try it", can.playground]);
    links.push([`/records?name=${name}`, "Records", can.records]);
  }
  if (card.entity) links.push([`/lookup?entity=${name}`, "Look up values", can.lookup]);
  if (card.retriever) links.push([`/retrievers?retriever=${name}`, "Try it", can.retrievers]);
  if (card.index) {
    links.push([`/retrievers?index=${name}`, "Try it", can.retrievers]);
    links.push([`/impact?index=${name}`, "Who saw it", can.impact]);
  }
  if (card.kind === "event") links.push([`/events?type=${name}`, "Live tail", can.events]);
  const shown = links.filter(([, , isAllowed]) => isAllowed);
  if (shown.length === 0) return null;
  return (
    <div className={css.links}>
      {shown.map(([href, label]) => (
        <ButtonLink key={href} href={href}>
          {label}
        </ButtonLink>
      ))}
    </div>
  );
}
