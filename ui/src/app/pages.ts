import {
  IconActivity,
  IconAffiliate,
  IconBolt,
  IconFileSearch,
  IconFlask,
  IconGitCompare,
  IconInbox,
  IconListDetails,
  IconRadar2,
  IconSearch,
  IconShieldCheck,
  IconStethoscope,
  type Icon,
} from "@tabler/icons-react";
import { createElement, type ComponentType } from "react";

import { isReachable } from "~/api/client";
import type { Operation } from "~/api/me";
import { UnreachableError } from "~/api/problems";
import { Skeleton } from "~/design";
import { loadable, type Loadable } from "~/design/loadable";

export type Section = "" | "Evidence" | "Events";

export type Page = {
  path: string;
  label: string;
  icon: Icon;
  section: Section;
  /** The page is absent if the key may not use this operation; null needs no server. */
  needs: Operation | null;
  /** The second key of the shortcut: `g` then this. */
  key: string;
} & Loadable<object>;

type Source = () => Promise<{ default: ComponentType }>;

/** A page is loaded when it is opened, or before that when an address names it. */
function loaded(source: Source): Loadable<object> {
  return loadable(() => source().catch(explain), createElement(Skeleton, { lines: 8 }));
}

/** Raise why the files of a page could not be loaded. */
async function explain(error: unknown): Promise<never> {
  if (!(await isReachable())) throw new UnreachableError(error);
  throw new Error(
    "Its files could not be loaded. The server may have been upgraded since this tab was opened: " +
      "try again to load the new ones.",
    { cause: error },
  );
}

/** The pages of the rail, in its order. */
export const PAGES: readonly Page[] = [
  {
    path: "/",
    label: "Overview",
    icon: IconActivity,
    section: "",
    needs: "GET /v1/overview",
    key: "o",
    ...loaded(() => import("~/pages/overview/OverviewPage")),
  },
  {
    path: "/store",
    label: "Store",
    icon: IconAffiliate,
    section: "",
    needs: "GET /api/store",
    key: "s",
    ...loaded(() => import("~/pages/store/StorePage")),
  },
  {
    path: "/lookup",
    label: "Lookup",
    icon: IconSearch,
    section: "",
    needs: "GET /v1/entities/{entity}/{entity_id}",
    key: "l",
    ...loaded(() => import("~/pages/lookup/LookupPage")),
  },
  {
    path: "/playground",
    label: "Playground",
    icon: IconFlask,
    section: "",
    needs: "POST /v1/contexts/{name}",
    key: "p",
    ...loaded(() => import("~/pages/playground/PlaygroundPage")),
  },
  {
    path: "/retrievers",
    label: "Retrievers",
    icon: IconFileSearch,
    section: "",
    needs: "GET /v1/indexes",
    key: "t",
    ...loaded(() => import("~/pages/retrievers/RetrieversPage")),
  },
  {
    path: "/records",
    label: "Records",
    icon: IconListDetails,
    section: "Evidence",
    needs: "GET /v1/contexts",
    key: "r",
    ...loaded(() => import("~/pages/records/RecordsPage")),
  },
  {
    path: "/impact",
    label: "Impact",
    icon: IconRadar2,
    section: "Evidence",
    needs: "GET /v1/contexts/by-provenance",
    key: "i",
    ...loaded(() => import("~/pages/impact/ImpactPage")),
  },
  {
    path: "/evaluations",
    label: "Evaluations",
    icon: IconGitCompare,
    section: "Evidence",
    needs: "GET /v1/evaluations",
    key: "a",
    ...loaded(() => import("~/pages/evaluations/EvaluationsPage")),
  },
  {
    path: "/verify",
    label: "Verify",
    icon: IconShieldCheck,
    section: "Evidence",
    needs: null,
    key: "v",
    ...loaded(() => import("~/pages/verify/VerifyPage")),
  },
  {
    path: "/events",
    label: "Live tail",
    icon: IconBolt,
    section: "Events",
    needs: "GET /v1/events",
    key: "e",
    ...loaded(() => import("~/pages/events/EventsPage")),
  },
  {
    path: "/dead-letters",
    label: "Dead letters",
    icon: IconInbox,
    section: "Events",
    needs: "GET /v1/dead-letters",
    key: "d",
    ...loaded(() => import("~/pages/dead-letters/DeadLettersPage")),
  },
  {
    path: "/doctor",
    label: "Doctor",
    icon: IconStethoscope,
    section: "Events",
    needs: "GET /v1/doctor",
    key: "c",
    ...loaded(() => import("~/pages/doctor/DoctorPage")),
  },
];

/** Pages that other pages lead to. */
export const DETAIL_PAGES: readonly (Pick<Page, "path"> & Loadable<object>)[] = [
  { path: "/records/:id", ...loaded(() => import("~/pages/record/RecordPage")) },
  { path: "/evaluations/:cohort/:run", ...loaded(() => import("~/pages/evaluations/RunPage")) },
  { path: "/compare", ...loaded(() => import("~/pages/compare/ComparePage")) },
];
