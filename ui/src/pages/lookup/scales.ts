/** Axes: which ticks to draw, and where a value stands. Every function is pure. */

type Scale = (value: number) => number;

export function linear(domain: readonly [number, number], range: readonly [number, number]): Scale {
  const [low, high] = domain;
  const span = high - low || 1;
  return (value) => range[0] + ((value - low) / span) * (range[1] - range[0]);
}

/** Return round numbers that cover the values: 0, 20, 40, 60. */
export function numberTicks(low: number, high: number, most = 5): number[] {
  if (low === high) {
    const room = Math.abs(low) / 2 || 1;
    return numberTicks(low - room, high + room, most);
  }
  const raw = (high - low) / Math.max(most - 1, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 2.5, 5, 10].find((each) => each * power >= raw * 0.999) ?? 10) * power;
  const first = Math.floor(low / step);
  const last = Math.ceil(high / step);
  return Array.from({ length: last - first + 1 }, (_, index) =>
    Number(((first + index) * step).toPrecision(12)),
  );
}

/** Return a tick in full: neighbours may differ in their last digits only. */
export function tickText(tick: number): string {
  const notation = Math.abs(tick) >= 1_000_000 ? "compact" : "standard";
  return new Intl.NumberFormat("en", { notation, maximumSignificantDigits: 12 }).format(tick);
}

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  ...[1, 2, 5, 15, 30].map((each) => each * SECOND),
  ...[1, 2, 5, 15, 30].map((each) => each * MINUTE),
  ...[1, 2, 3, 6, 12].map((each) => each * HOUR),
  ...[1, 2, 5, 7, 14, 30, 61, 91, 182, 365, 730, 1825].map((each) => each * DAY),
];

type TimeTick = { at: number; label: string };

/** Return times at round moments of a zone, at most so many, with labels as short as they can be. */
export function timeTicks(start: number, end: number, most: number, local = false): TimeTick[] {
  const wanted = (end - start) / Math.max(most, 1);
  const step = STEPS.find((each) => each >= wanted) ?? 3650 * DAY;
  const offset = local ? -new Date(start).getTimezoneOffset() * MINUTE : 0;
  const first = Math.ceil((start + offset) / step) * step - offset;
  const ticks: TimeTick[] = [];
  for (let at = first; at <= end; at += step) ticks.push({ at, label: label(at, step, local) });
  return ticks;
}

function label(at: number, step: number, local: boolean): string {
  const timeZone = local ? undefined : "UTC";
  const show = (options: Intl.DateTimeFormatOptions) =>
    new Intl.DateTimeFormat("en-GB", { ...options, hourCycle: "h23", timeZone }).format(at);
  if (step >= 300 * DAY) return show({ year: "numeric" });
  if (step >= DAY) return show({ day: "numeric", month: "short" });
  const time: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit" };
  if (step < MINUTE) time.second = "2-digit";
  const text = show(time);
  // Midnight names the day that begins.
  return text.startsWith("00:00") ? show({ day: "numeric", month: "short" }) : text;
}
