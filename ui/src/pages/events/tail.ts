import { useEffect, useState, useSyncExternalStore } from "react";

import type { Schema } from "~/api/client";
import { follow, type Message, type StreamState } from "~/api/stream";

/** An event as the pages show it; `key` tells apart events with the same id. */
export type Shown = Schema<"LoggedEvent"> & { key: string };

export type TailView = {
  state: StreamState;
  /** The newest first. */
  events: readonly Shown[];
  isPaused: boolean;
  /** How many events arrived since the pause. */
  waiting: number;
  /** How many events the server left out because this page was too slow. */
  skipped: number;
};

export const MOST_SHOWN = 1_000;
/** Several events a frame are drawn together. */
const DRAW_MS = 100;

/** The events that arrived, at most a thousand of them, and those that wait during a pause. */
export class TailBuffer {
  private view: TailView = {
    state: { phase: "connecting" },
    events: [],
    isPaused: false,
    waiting: 0,
    skipped: 0,
  };
  private held: Shown[] = [];
  private arrived: Shown[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private number = 0;
  private readonly listeners = new Set<() => void>();

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly read = (): TailView => this.view;

  readonly setState = (state: StreamState): void => this.show({ state });

  readonly take = (message: Message): void => {
    if (message.type === "gap") {
      const { skipped } = JSON.parse(message.data) as Schema<"TailGap">;
      this.show({ skipped: this.view.skipped + skipped });
    } else if (message.type === "message") {
      const logged = JSON.parse(message.data) as Schema<"LoggedEvent">;
      this.number += 1;
      this.arrived.push({ ...logged, key: String(this.number) });
      this.timer ??= setTimeout(() => this.draw(), DRAW_MS);
    }
  };

  readonly pause = (): void => {
    this.draw();
    this.show({ isPaused: true });
  };

  readonly resume = (): void => {
    const events = newest(this.held, this.view.events);
    this.held = [];
    this.show({ isPaused: false, waiting: 0, events });
    this.draw();
  };

  readonly clear = (): void => this.show({ events: [], skipped: 0 });

  /** Move what has arrived to the page, or to what waits. */
  draw(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const arrived = this.arrived;
    if (arrived.length === 0) return;
    this.arrived = [];
    if (this.view.isPaused) {
      this.held = [...this.held, ...arrived].slice(-MOST_SHOWN);
      this.show({ waiting: this.view.waiting + arrived.length });
    } else {
      this.show({ events: newest(arrived, this.view.events) });
    }
  }

  private show(change: Partial<TailView>): void {
    this.view = { ...this.view, ...change };
    for (const listener of this.listeners) listener();
  }
}

function newest(arrived: readonly Shown[], before: readonly Shown[]): readonly Shown[] {
  return [...arrived.toReversed(), ...before].slice(0, MOST_SHOWN);
}

/** Follow the events that match a query string, from now on. */
export function useTail(query: string): [TailView, TailBuffer] {
  const [held, setHeld] = useState(() => ({ query, buffer: new TailBuffer() }));
  const { buffer } = held;
  if (held.query !== query) setHeld({ query, buffer: new TailBuffer() });
  const view = useSyncExternalStore(buffer.subscribe, buffer.read);
  useEffect(() => {
    const stop = new AbortController();
    void follow(`/v1/events/tail${query}`, {
      signal: stop.signal,
      onMessage: buffer.take,
      onState: buffer.setState,
    });
    return () => stop.abort();
  }, [buffer, query]);
  return [view, buffer];
}
