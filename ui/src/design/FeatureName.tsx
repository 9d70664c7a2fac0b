import { Fragment } from "react";

import css from "./text.module.css";

/** A declared name that breaks after its underscores only, if it has to. */
export function FeatureName({ name }: { name: string }) {
  return (
    <span className={css.name}>
      {name.split("_").map((part, index) => (
        <Fragment key={index}>
          {index > 0 && (
            <>
              _<wbr />
            </>
          )}
          {part}
        </Fragment>
      ))}
    </span>
  );
}
