import css from "./Sparkline.module.css";

type Props = {
  /** Values in order of time; null is a gap. */
  values: readonly (number | null)[];
  /** What the line shows, with its latest value: it is read aloud. */
  label: string;
  tone?: "accent" | "fresh" | "ageing" | "failed";
  height?: number;
};

const WIDTH = 240;

/** A small line without axes: the shape of the last hour. */
export function Sparkline({ values, label, tone = "accent", height = 32 }: Props) {
  const known = values.filter((value) => value !== null);
  const low = Math.min(...known, 0);
  const span = Math.max(...known) - low || 1;
  const x = (index: number) => (index / Math.max(values.length - 1, 1)) * WIDTH;
  const y = (value: number) => height - 2 - ((value - low) / span) * (height - 4);
  return (
    <svg
      className={css[tone]}
      viewBox={`0 0 ${WIDTH} ${height}`}
      height={height}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      {runs(values).map((run) => (
        <polyline
          key={run[0]}
          points={run
            .map((index) => `${x(index).toFixed(1)},${y(values[index] ?? 0).toFixed(1)}`)
            .join(" ")}
        />
      ))}
    </svg>
  );
}

/** Return the indexes of known values, split at the gaps. */
export function runs(values: readonly (number | null)[]): number[][] {
  const found: number[][] = [];
  let open: number[] | null = null;
  values.forEach((value, index) => {
    if (value === null) open = null;
    else if (open === null) found.push((open = [index]));
    else open.push(index);
  });
  return found;
}
