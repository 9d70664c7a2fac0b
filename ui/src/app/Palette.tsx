import { Spotlight } from "@mantine/spotlight";
import { useLocation } from "wouter";

import { useAllowedPages } from "./allowed";
import css from "./Palette.module.css";

/** The palette: go to a page, or to a thing by its name or id. */
export function Palette() {
  const pages = useAllowedPages();
  const [, navigate] = useLocation();
  return (
    <Spotlight
      shortcut={["mod + K", "/"]}
      actions={pages.map(({ path, label, icon: Icon }) => ({
        id: path,
        label,
        leftSection: <Icon size={16} stroke={1.7} />,
        onClick: () => navigate(path),
      }))}
      nothingFound="Nothing found."
      searchProps={{ placeholder: "Feature, context, entity id, record id or hash" }}
      transitionProps={{ duration: 0 }}
      attributes={{ content: { "aria-label": "Search" } }}
      classNames={{ action: css.action }}
    />
  );
}
