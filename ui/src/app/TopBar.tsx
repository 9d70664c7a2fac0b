import { useMantineColorScheme, useComputedColorScheme } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconKeyOff, IconMenu2, IconMoon, IconSearch, IconSun } from "@tabler/icons-react";

import { me } from "~/api/queries";
import { setKey, useKey } from "~/api/session";
import { Button, IconButton, Tag } from "~/design";
import { localTime } from "~/design/preferences";

import { Health } from "./Health";
import { paletteOpen, railSheet } from "./sheet";
import css from "./TopBar.module.css";

/** Environment, health, search, time zone, theme and key. */
export function TopBar() {
  const { data: caller } = useQuery(me);
  return (
    <header className={css.bar}>
      <span className={css.menu}>
        <IconButton label="Pages" onClick={() => railSheet.set(true)}>
          <IconMenu2 size={18} />
        </IconButton>
      </span>
      {caller && (
        <span className={css.environment}>
          <Tag>{caller.environment}</Tag>
        </span>
      )}
      <Health />
      <button
        type="button"
        className={css.search}
        title="Search"
        onClick={() => paletteOpen.set(true)}
      >
        <IconSearch size={14} aria-hidden />
        <span>Feature, context, entity id, record id or hash</span>
        <kbd>{/Mac|iPhone|iPad/.test(navigator.userAgent) ? "⌘ K" : "Ctrl K"}</kbd>
      </button>
      <div className={css.end}>
        <ZoneButton />
        <ThemeButton />
        <KeyButton />
      </div>
    </header>
  );
}

function ZoneButton() {
  const isLocal = localTime.use();
  return (
    <Button
      look="quiet"
      aria-pressed={isLocal}
      onClick={() => localTime.set(!isLocal)}
      title="Time zone"
    >
      {isLocal ? "Local" : "UTC"}
    </Button>
  );
}

function ThemeButton() {
  // Without it Mantine stops transitions by a style made at run time, which the policy refuses.
  const { setColorScheme } = useMantineColorScheme({ keepTransitions: true });
  const isDark = useComputedColorScheme("light") === "dark";
  return (
    <IconButton
      label={isDark ? "Light theme" : "Dark theme"}
      onClick={() => setColorScheme(isDark ? "light" : "dark")}
    >
      {isDark ? <IconSun size={17} /> : <IconMoon size={17} />}
    </IconButton>
  );
}

function KeyButton() {
  const key = useKey();
  const { data: caller } = useQuery(me);
  if (key === null) return null;
  return (
    <IconButton
      label="Forget the key"
      {...(caller && { title: `Forget the key ${caller.name} (${caller.scopes.join(", ")})` })}
      onClick={() => {
        setKey(null);
        location.reload();
      }}
    >
      <IconKeyOff size={17} />
    </IconButton>
  );
}
