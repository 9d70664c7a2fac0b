import { exact } from "~/design/format";
import { localTime } from "~/design/preferences";

import css from "./Events.module.css";

type Props = {
  at: string;
  /** Show the day and leave out the milliseconds: past events are of many days. */
  isDated?: boolean;
};

/** The time of an event; the whole time on hover. */
export function Clock({ at, isDated = false }: Props) {
  const isLocal = localTime.use();
  const time = new Date(at);
  const whole = exact(time.getTime(), { local: isLocal });
  const ofDay = time.toLocaleTimeString("en-GB", {
    ...(isLocal ? {} : { timeZone: "UTC" }),
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
  });
  return (
    <time dateTime={at} title={whole} className={css.clock}>
      {isDated ? whole.replace(/ UTC$/, "") : ofDay}
    </time>
  );
}
