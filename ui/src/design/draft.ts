import { useState } from "react";

/**
 * Return what is typed into a form, which begins again with `initial` when the address (`of`) names
 * something else. Unlike a `key`, this leaves the focus in the form.
 */
export function useDraft<T>(of: string, initial: T): [T, (value: T) => void] {
  const [draft, setDraft] = useState({ of, value: initial });
  const value = draft.of === of ? draft.value : initial;
  return [value, (next) => setDraft({ of, value: next })];
}
