import { Modal } from "@mantine/core";
import { useEffect, useRef } from "react";
import { useLocation } from "wouter";

import { useAllowedPages } from "./allowed";
import { isTyping } from "./keys";
import { shortcutsOpen } from "./sheet";
import css from "./Shortcuts.module.css";

const GENERAL: readonly (readonly [keys: string, meaning: string])[] = [
  ["Ctrl K or /", "Search everything"],
  ["?", "This list"],
  ["↑ ↓ or j k", "Move in a list"],
  ["Enter", "Open what is selected"],
  ["Esc", "Close"],
];

/** The shortcuts of every page, and the list of them. */
export function Shortcuts() {
  const isOpen = shortcutsOpen.use();
  const pages = useAllowedPages();
  const [, navigate] = useLocation();
  const previous = useRef("");
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTyping(event)) return;
      const first = previous.current;
      previous.current = event.key;
      if (event.key === "?") shortcutsOpen.set(true);
      const page = first === "g" ? pages.find(({ key }) => key === event.key) : undefined;
      if (page) {
        previous.current = "";
        navigate(page.path);
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [pages, navigate]);
  return (
    <Modal
      opened={isOpen}
      onClose={() => shortcutsOpen.set(false)}
      title="Keyboard shortcuts"
      size="lg"
      centered
    >
      <div className={css.columns}>
        <Keys title="Everywhere" rows={GENERAL} />
        <Keys title="Go to" rows={pages.map(({ key, label }) => [`g ${key}`, label])} />
      </div>
    </Modal>
  );
}

function Keys({ title, rows }: { title: string; rows: readonly (readonly [string, string])[] }) {
  return (
    <section>
      <h3>{title}</h3>
      <dl className={css.list}>
        {rows.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>
              {keys
                .split(" ")
                .map((each, index) => (each === "or" ? " or " : <kbd key={index}>{each}</kbd>))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
