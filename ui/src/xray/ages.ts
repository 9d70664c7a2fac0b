/** The logarithmic axis of ages. Pure. */

const TICKS: readonly number[] = [
  1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000,
  2_592_000_000, 31_536_000_000,
];

type Axis = {
  ticks: readonly number[];
  /** The place of an age on the axis, from 0 to 1. */
  at: (ms: number) => number;
};

/** Return an axis that holds all these ages, with some room at both ends and few ticks. */
export function axisOf(ages: readonly number[], most = 5): Axis {
  const known = ages.length === 0 ? [1_000] : ages.map((age) => Math.max(1, age));
  const high = Math.max(3, Math.log10(Math.max(...known) * 2.5));
  // At least three decades, so that few ages stand among some ticks.
  const low = Math.max(0, Math.min(high - 3, Math.log10(Math.min(...known) / 2)));
  const at = (ms: number) =>
    Math.min(1, Math.max(0, (Math.log10(Math.max(1, ms)) - low) / (high - low)));
  const inside = TICKS.filter((tick) => Math.log10(tick) >= low && Math.log10(tick) <= high);
  const step = Math.ceil(inside.length / most);
  return { ticks: inside.filter((_, index) => index % step === 0), at };
}
