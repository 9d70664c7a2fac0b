import { useEffect, useRef, useState } from "react";

const PAUSE = 150;

/** A text that is typed here and applied elsewhere a moment after the last key. */
export function useDebounced(
  applied: string,
  apply: (text: string) => void,
): [string, (text: string) => void] {
  const [typed, setTyped] = useState<string | null>(null);
  const latest = useRef(apply);
  useEffect(() => {
    latest.current = apply;
  });
  useEffect(() => {
    if (typed === null) return;
    const timer = setTimeout(() => {
      latest.current(typed);
      setTyped(null);
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [typed]);
  return [typed ?? applied, setTyped];
}
