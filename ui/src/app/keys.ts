/** Where keys have a meaning of their own; a checkbox leaves all but Space to the page. */
const OWN = "input:not([type=checkbox]), textarea, select, [role=dialog], [role=menu]";

/** Return whether a key belongs to a field, a dialog, a menu or the browser and not to the page. */
export function isTyping({ ctrlKey, metaKey, altKey, target }: KeyboardEvent): boolean {
  if (ctrlKey || metaKey || altKey) return true;
  return target instanceof HTMLElement && (target.isContentEditable || !!target.closest(OWN));
}
