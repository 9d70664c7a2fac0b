import { useQuery } from "@tanstack/react-query";
import { Link, Redirect, Route, Switch, useLocation } from "wouter";

import { ProblemError } from "~/api/problems";
import { me } from "~/api/queries";
import { Empty, ErrorPanel, Skeleton } from "~/design";

import { Boundary } from "./Boundary";
import { Forbidden } from "./Forbidden";
import { KeyEntry } from "./KeyEntry";
import { DETAIL_PAGES, PAGES } from "./pages";
import { Palette } from "./Palette";
import { Rail } from "./Rail";
import { ServerBanner } from "./ServerBanner";
import css from "./Shell.module.css";
import { Shortcuts } from "./Shortcuts";
import { TopBar } from "./TopBar";

/** The frame around every page: rail, top bar, palette, shortcuts, and the key. */
export function Shell() {
  const caller = useQuery(me);
  if (caller.error instanceof ProblemError && caller.error.status === 401) {
    return <KeyEntry error={caller.error} />;
  }
  return (
    <div className={css.shell}>
      <a href="#page" className={css.skip}>
        Skip to the page
      </a>
      <Rail />
      <TopBar />
      <main id="page" className={css.page} tabIndex={-1}>
        <ServerBanner />
        {caller.isPending && <Skeleton lines={8} />}
        {caller.isError && caller.data === undefined && (
          <ErrorPanel error={caller.error} retry={() => void caller.refetch()} />
        )}
        {caller.data !== undefined && <Pages operations={caller.data.operations} />}
      </main>
      <Palette />
      <Shortcuts />
    </div>
  );
}

function Pages({ operations }: { operations: readonly string[] }) {
  const [location] = useLocation();
  const allowed = PAGES.filter(({ needs }) => needs === null || operations.includes(needs));
  const refused = PAGES.find(({ path }) => path === location);
  return (
    <Boundary key={location}>
      <Switch>
        {[...allowed, ...DETAIL_PAGES].map(({ path, component }) => (
          <Route key={path} path={path} component={component} />
        ))}
        {allowed[0] && (
          <Route path="/">
            <Redirect to={allowed[0].path} replace />
          </Route>
        )}
        <Route>{refused ? <Forbidden page={refused} /> : <Unknown />}</Route>
      </Switch>
    </Boundary>
  );
}

function Unknown() {
  return (
    <Empty title="No page has this address">
      <Link href="/">Go to the overview</Link>
    </Empty>
  );
}
