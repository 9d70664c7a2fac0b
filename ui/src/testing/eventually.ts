import { configure } from "@testing-library/react";
import { vi } from "vitest";

/** How long a condition may take on a busy machine. */
const PATIENCE_MS = 60_000;

configure({ asyncUtilTimeout: PATIENCE_MS });

/** Wait until a check passes. */
export function eventually(check: () => void): Promise<void> {
  return vi.waitFor(check, { timeout: PATIENCE_MS });
}
