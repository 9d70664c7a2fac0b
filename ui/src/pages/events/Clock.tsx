import { exact } from "~/design/format";
import { localTime } from "~/design/preferences";

import css from "./Events.module.css";

/** The time of day of an event, to the millisecond; the whole time on hover. */
export function Clock({ at }: { at: string }) {
  const isLocal = localTime.use();
  const time = new Date(at);
  const shown = time.toLocaleTimeString("en-GB", {
    ...(isLocal ? {} : { timeZone: "UTC" }),
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
  });
  return (
    <time dateTime={at} title={exact(time.getTime(), { local: isLocal })} className={css.clock}>
      {shown}
    </time>
  );
}
