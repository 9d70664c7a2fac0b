/** Numbers, durations and times as people read them. Every function is pure. */

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS: readonly (readonly [unit: string, ms: number])[] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
];

/** Return a number in full: `1,240`. */
export function count(value: number): string {
  return COUNT.format(value);
}

/** Return a number with at most three significant digits: `0.14`, `12.3`, `1,240`. */
export function short(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100) return count(value);
  return String(Number(value.toPrecision(size >= 1 ? 3 : 2)));
}

/** Return a duration in at most two units: `38 ms`, `2.1 s`, `6 h 12 m`, `3 d`. */
export function duration(ms: number): string {
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1) return ms === 0 ? "0 ms" : "< 1 ms";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${Number((ms / 1_000).toFixed(1))} s`;
  const rounded = Math.round(ms / 1_000) * 1_000;
  const index = UNITS.findIndex(([, size]) => rounded >= size);
  const [unit, size] = UNITS[index] ?? ["s", 1_000];
  const whole = Math.floor(rounded / size);
  const next = UNITS[index + 1];
  const rest = next === undefined ? 0 : Math.floor((rounded - whole * size) / next[1]);
  return next === undefined || rest === 0
    ? `${whole} ${unit}`
    : `${whole} ${unit} ${rest} ${next[0]}`;
}

/** Return how long ago a time is: `15 h ago`, `in 3 m`, `now`. */
export function ago(time: number, now: number): string {
  const ms = now - time;
  if (Math.abs(ms) < 1_000) return "now";
  const text = duration(Math.floor(Math.abs(ms) / 1_000) * 1_000).split(" ");
  const short = Math.abs(ms) < 60_000 ? text.join(" ") : text.slice(0, 2).join(" ");
  return ms > 0 ? `${short} ago` : `in ${short}`;
}

/** Return whether a time is close enough to now to be told apart by how long ago it is. */
export function isRecent(time: number, now: number): boolean {
  return Math.abs(now - time) < 3_600_000;
}

/** Return an exact time: `14 Nov 02:14:07 UTC`; with the year when it is not this one. */
export function exact(
  time: number,
  { local = false, now = Date.now(), seconds = true } = {},
): string {
  const zone = local ? undefined : "UTC";
  const year = (at: number) =>
    new Intl.DateTimeFormat("en", { year: "numeric", timeZone: zone }).format(at);
  const options: Intl.DateTimeFormatOptions = {
    day: "numeric",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
    ...(seconds ? { second: "2-digit" } : {}),
    hourCycle: "h23",
    timeZone: zone,
    ...(year(time) === year(now) ? {} : { year: "numeric" }),
  };
  const text = new Intl.DateTimeFormat("en-GB", options).format(time).replace(",", "");
  return local ? text : `${text} UTC`;
}

const WALL = new Intl.DateTimeFormat("en-GB", {
  weekday: "short",
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  timeZone: "UTC",
});

/** Return a time as the clock of its own zone shows it: `Wed 18 Nov 2026 06:00 +01:00`. */
export function wallTime(iso: string): string {
  const [, time, zone] = /^(.{19})(?:\.\d+)?(.*)$/.exec(iso) ?? [];
  if (time === undefined) return iso;
  const text = WALL.format(Date.parse(`${time}Z`))
    .replaceAll(",", "")
    .replace(/:00$/, "");
  return `${text} ${zone === "Z" || zone === "" ? "UTC" : zone}`;
}

/** Return a price: `0.14 ¢`, `$ 1.20`; in the unit of the largest of those that it stands with. */
export function money(nanoUsd: number, largest = nanoUsd): string {
  const cents = nanoUsd / 10_000_000;
  if (largest >= 1_000_000_000) return `$ ${(cents / 100).toFixed(2)}`;
  return `${short(cents)} ¢`;
}

/** Return a share of 1 as a percentage: `93.4 %`; only a whole is `100 %`. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 99.9 && value < 100) return "99.9 %";
  return `${Number(value.toFixed(1))} %`;
}

/** Return a text with its middle left out: `01a1e043…1c18a9`. */
export function shortened(text: string, head = 8, tail = 6): string {
  return text.length <= head + tail + 1 ? text : `${text.slice(0, head)}…${text.slice(-tail)}`;
}

/** Return a count and its noun: `1 event`, `3 events`. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Return any JSON value on one line; texts stay as they are. */
export function inline(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Characters that are not seen and change the order of the others. */
const INVISIBLE = /[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Return a JSON value in lines; what cannot be seen is written as an escape. */
export function pretty(value: unknown): string {
  const escaped = (character: string) =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(value, null, 2).replace(INVISIBLE, escaped);
}
