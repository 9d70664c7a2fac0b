import { useEffect, useState, type ComponentType, type ReactNode } from "react";

export type Loadable<Props> = {
  component: ComponentType<Props>;
  /** Load the code, so that the component is drawn at once. */
  load: () => Promise<ComponentType<Props>>;
};

/**
 * Return a component whose code is loaded when it is first drawn, or before that; `waiting` is drawn
 * meanwhile. React's `lazy` is not used, because React reveals the content of a `Suspense` no sooner
 * than 300 ms after its fallback, and the code of a page is here after 20.
 */
export function loadable<Props extends object>(
  source: () => Promise<{ default: ComponentType<Props> }>,
  waiting: ReactNode,
): Loadable<Props> {
  let loaded: ComponentType<Props> | null = null;

  async function load(): Promise<ComponentType<Props>> {
    return (loaded ??= (await source()).default);
  }

  function Part(props: Props) {
    const [Component, setComponent] = useState(() => loaded);
    const [failure, setFailure] = useState<{ error: unknown } | null>(null);
    useEffect(() => {
      if (Component !== null) return;
      load().then(
        (component) => setComponent(() => component),
        (error: unknown) => setFailure({ error }),
      );
    }, [Component]);
    if (failure !== null) throw failure.error;
    return Component === null ? waiting : <Component {...props} />;
  }

  return { component: Part, load };
}
