import { useQueryClient } from "@tanstack/react-query";
import { IconPlugConnectedX } from "@tabler/icons-react";

import { useReachability } from "~/api/reachability";
import { Button, Time } from "~/design";

import css from "./Shell.module.css";

/** Says that the server is away; the page below keeps what it knew. */
export function ServerBanner() {
  const { reachable, since } = useReachability();
  const client = useQueryClient();
  if (reachable) return null;
  return (
    <div className={css.banner} role="alert">
      <IconPlugConnectedX size={16} aria-hidden />
      <span>
        <strong>The server does not answer</strong> since <Time at={since} show="exact" />. You see
        the last known data.
      </span>
      <Button onClick={() => void client.invalidateQueries()}>Try again</Button>
    </div>
  );
}
