import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";

import { api, body, type Schema } from "~/api/client";

import { durationText, type Limits } from "./limits";

/** What one run is asked for. */
export type Request = { context: string; params: Record<string, unknown>; limits: Limits };

/** A run that was recorded. */
export type Run = Request & {
  number: number;
  took: number;
  result: Schema<"Assembled">;
};

let runs: readonly Run[] = [];
const listeners = new Set<() => void>();

function keep(run: Omit<Run, "number">): Run {
  const numbered = { ...run, number: (runs.at(-1)?.number ?? 0) + 1 };
  runs = [...runs.slice(-49), numbered];
  for (const listener of listeners) listener();
  return numbered;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Return the runs of this tab, oldest first; they outlive a visit to another page. */
export function useRuns(): readonly Run[] {
  return useSyncExternalStore(subscribe, () => runs);
}

/** Return the options of a request that differ from the declaration. */
export function overridesOf({ maxTokens, slaMs }: Limits) {
  return {
    ...(maxTokens === null ? {} : { max_tokens: maxTokens }),
    ...(slaMs === null ? {} : { freshness_sla: durationText(slaMs) }),
  };
}

async function assemble(request: Request, signal: AbortSignal): Promise<Run> {
  const began = performance.now();
  const result = body(
    await api.POST("/v1/contexts/{name}", {
      params: { path: { name: request.context } },
      body: {
        params: request.params as Record<string, never>,
        // Records of the playground can be told from those of the application.
        interaction_ref: { source: "playground" } as unknown as Record<string, never>,
        ...overridesOf(request.limits),
      },
      signal,
    }),
  );
  return keep({ ...request, result, took: performance.now() - began });
}

type State = { isRunning: boolean; error: Error | null };

const PAUSE_MS = 300;

/** Assemble contexts one at a time: a new run cancels the one before it, also while it waits. */
export function useAssembly(onDone: (run: Run) => void) {
  const [state, setState] = useState<State>({ isRunning: false, error: null });
  const current = useRef<AbortController | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const stop = useCallback(() => {
    clearTimeout(timer.current);
    current.current?.abort();
  }, []);
  useEffect(() => stop, [stop]);

  const run = (request: Request, pause = 0) => {
    stop();
    const controller = new AbortController();
    current.current = controller;
    timer.current = setTimeout(() => {
      setState({ isRunning: true, error: null });
      assemble(request, controller.signal).then(
        (done) => {
          if (controller.signal.aborted) return;
          setState({ isRunning: false, error: null });
          onDone(done);
        },
        (error: unknown) => {
          if (controller.signal.aborted) return;
          setState({ isRunning: false, error: error as Error });
        },
      );
    }, pause);
  };
  return { ...state, run, runSoon: (request: Request) => run(request, PAUSE_MS) };
}
