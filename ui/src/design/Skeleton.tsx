import css from "./Skeleton.module.css";

/** Bars in the shape of the text that comes. */
export function Skeleton({ lines = 3, height }: { lines?: number; height?: number }) {
  return (
    <div className={css.skeleton} role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, line) => (
        <div
          key={line}
          style={{ height, width: height ? undefined : `${92 - ((line * 23) % 48)}%` }}
        />
      ))}
    </div>
  );
}
