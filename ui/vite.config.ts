/// <reference types="vitest/config" />
import react from "@vitejs/plugin-react";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

export default defineConfig({
  // Links are relative, so that a proxy may add a prefix to the path.
  base: "./",
  plugins: [react()],
  resolve: { alias: { "~": path("src"), "@verifier": path("../verifier") } },
  build: {
    outDir: path("../src/headwater/ui"),
    emptyOutDir: true,
    target: "es2022",
    // Inlined assets would be `data:` URLs, which the content security policy refuses for fonts.
    assetsInlineLimit: 0,
    license: { fileName: "licenses.md" },
  },
  server: {
    // `npm run dev` shows a server that runs elsewhere, for example `headwater demo --keep`.
    proxy: Object.fromEntries(
      ["/v1", "/api", "/ingest", "/context", "/readyz", "/healthz", "/openapi.json", "/docs"].map(
        (prefix) => [prefix, process.env.HEADWATER_URL ?? "http://127.0.0.1:8000"],
      ),
    ),
  },
  test: {
    environment: "happy-dom",
    // One environment for all files: to make one takes longer than their tests.
    isolate: false,
    unstubGlobals: true,
    // A busy machine may pause for seconds.
    testTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
    include: ["src/**/*.test.{ts,tsx}"],
  },
});
