import { IconX } from "@tabler/icons-react";
import { Link, useLocation, useSearch } from "wouter";

import { IconButton } from "~/design";

import { PAGES, type Page, type Section } from "./pages";
import { useAllowedPages } from "./allowed";
import css from "./Rail.module.css";
import { railSheet } from "./sheet";

const SECTIONS: readonly Section[] = ["", "Evidence", "Events"];

/** The pages, at the left; on a phone a sheet at the bottom. */
export function Rail() {
  const allowed = useAllowedPages();
  const isOpen = railSheet.use();
  return (
    <>
      {isOpen && <div className={css.scrim} onClick={() => railSheet.set(false)} aria-hidden />}
      <nav className={isOpen ? `${css.rail} ${css.open}` : css.rail} aria-label="Pages">
        <div className={css.brand}>
          <Link href="/" className={css.name}>
            <Drop /> Headwater
          </Link>
          <span className={css.close}>
            <IconButton label="Close" onClick={() => railSheet.set(false)}>
              <IconX size={16} />
            </IconButton>
          </span>
        </div>
        {SECTIONS.map((section) => (
          <Group
            key={section}
            name={section}
            pages={allowed.filter((page) => page.section === section)}
          />
        ))}
      </nav>
    </>
  );
}

function Group({ name, pages }: { name: string; pages: readonly Page[] }) {
  const [location] = useLocation();
  const active = activePath(location, useSearch());
  if (pages.length === 0) return null;
  return (
    <div className={css.group}>
      {name !== "" && <h2>{name}</h2>}
      <ul>
        {pages.map(({ path, label, icon: Icon }) => (
          <li key={path}>
            <Link
              href={path}
              className={css.link}
              aria-current={path === active ? "page" : undefined}
              onClick={() => railSheet.set(false)}
            >
              <Icon size={16} stroke={1.7} aria-hidden />
              {label}
            </Link>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Return the path of the rail's page that a location belongs to. */
function activePath(location: string, search: string): string | undefined {
  if (location.startsWith("/compare")) {
    return new URLSearchParams(search).has("cohort") ? "/evaluations" : "/records";
  }
  return PAGES.map(({ path }) => path)
    .filter((path) => location === path || (path !== "/" && location.startsWith(`${path}/`)))
    .at(-1);
}

function Drop() {
  return (
    <svg viewBox="0 0 24 24" width="18" height="18" className={css.drop} aria-hidden>
      <path d="M12 22.5 5.2 15.2a9 9 0 1 1 13.6 0z" />
    </svg>
  );
}
