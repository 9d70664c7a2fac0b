import { screen } from "@testing-library/react";
import { Component, type ReactNode } from "react";
import { afterEach, describe, expect, it, vi } from "vitest";

import { shown } from "~/testing/page";

import { loadable } from "./loadable";

afterEach(() => {
  vi.restoreAllMocks();
});

function Greeting({ name }: { name: string }) {
  return <p>Hello {name}</p>;
}

class Caught extends Component<{ children: ReactNode }, { message: string | null }> {
  override state: { message: string | null } = { message: null };

  static getDerivedStateFromError(error: unknown) {
    return { message: String(error) };
  }

  override render() {
    return this.state.message ?? this.props.children;
  }
}

describe("a component that is loaded", () => {
  it("draws something else until its code is here, then is drawn at once", async () => {
    const { component: Part } = loadable(() => Promise.resolve({ default: Greeting }), "Wait");
    shown(<Part name="Ada" />, {});
    expect(screen.getByText("Wait")).toBeTruthy();
    await screen.findByText("Hello Ada");
    shown(<Part name="Bob" />, {});
    expect(screen.getByText("Hello Bob")).toBeTruthy();
  });

  it("is drawn at once if its code was asked for before", async () => {
    const { component: Part, load } = loadable(
      () => Promise.resolve({ default: Greeting }),
      "Wait",
    );
    await load();
    shown(<Part name="Ada" />, {});
    expect(screen.getByText("Hello Ada")).toBeTruthy();
  });

  it("raises why its code could not be loaded, and tries again when drawn again", async () => {
    let tries = 0;
    const { component: Part } = loadable(async () => {
      await Promise.resolve();
      tries += 1;
      if (tries === 1) throw new Error("the server was upgraded");
      return { default: Greeting };
    }, "Wait");
    vi.spyOn(console, "error").mockReturnValue(); // React repeats the error
    const part = (
      <Caught>
        <Part name="Ada" />
      </Caught>
    );
    shown(part, {});
    await screen.findByText("Error: the server was upgraded");
    shown(part, {});
    await screen.findByText("Hello Ada");
  });
});
