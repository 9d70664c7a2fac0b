import { createContext, useContext, useMemo, useState, type KeyboardEvent } from "react";

/** Which item is shown: the one under the pointer, otherwise the chosen one. */
export type Selection = {
  /** The index in the order of the text that all parts highlight. */
  active: number;
  selected: number;
  select: (index: number) => void;
  hover: (index: number | null) => void;
};

export const SelectionContext = createContext<Selection>({
  active: 0,
  selected: 0,
  select: () => undefined,
  hover: () => undefined,
});

export const useSelection = (): Selection => useContext(SelectionContext);

/** Return the selection among some items; the page is told about each choice. */
export function useSelectionState(
  size: number,
  first: number,
  onChoose: ((index: number) => void) | undefined,
): Selection {
  const [chosen, setChosen] = useState(first);
  const [hovered, setHovered] = useState<number | null>(null);
  const last = Math.max(0, size - 1);
  const selected = Math.min(chosen, last);
  const active = Math.min(hovered ?? selected, last);
  return useMemo(
    () => ({
      active,
      selected,
      select: (index) => {
        setHovered(null);
        setChosen(index);
        onChoose?.(index);
      },
      hover: setHovered,
    }),
    [active, selected, onChoose],
  );
}

const STEPS: Readonly<Record<string, number>> = {
  ArrowDown: 1,
  ArrowRight: 1,
  j: 1,
  ArrowUp: -1,
  ArrowLeft: -1,
  k: -1,
  PageDown: 10,
  PageUp: -10,
  Home: Number.NEGATIVE_INFINITY,
  End: Number.POSITIVE_INFINITY,
};

/** Return the handler of arrow keys that moves the selection; Enter opens the inspector. */
export function moving(
  { selected, select }: Selection,
  size: number,
  open?: () => void,
): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = STEPS[event.key];
    if (event.key === "Enter" && open) {
      event.preventDefault();
      open();
    } else if (step !== undefined && size > 0) {
      event.preventDefault();
      select(Math.max(0, Math.min(size - 1, selected + step)));
    }
  };
}
