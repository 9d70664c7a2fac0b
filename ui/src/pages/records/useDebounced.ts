import { useEffect, useRef, useState } from "react";

const PAUSE = 150;

/**
 * A text that is typed here and applied elsewhere a moment after the last key. `apply` returns whether it
 * was; if not, the text stays as typed.
 */
export function useDebounced(
  applied: string,
  apply: (text: string) => boolean,
): [string, (text: string) => void] {
  const [typed, setTyped] = useState<string | null>(null);
  const latest = useRef(apply);
  useEffect(() => {
    latest.current = apply;
  });
  useEffect(() => {
    if (typed === null) return;
    const timer = setTimeout(() => {
      if (latest.current(typed)) setTyped(null);
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [typed]);
  return [typed ?? applied, setTyped];
}
