import { MantineProvider } from "@mantine/core";
import { QueryClientProvider, type QueryClient } from "@tanstack/react-query";
import { Router } from "wouter";

import { BASE } from "~/api/address";

import { useExactSearch } from "./search";
import { Shell } from "./Shell";
import { theme } from "./theme";

export function App({ client }: { client: QueryClient }) {
  return (
    // Styles made at run time are refused by the content security policy; tokens.css has them.
    <MantineProvider
      theme={theme}
      defaultColorScheme="auto"
      withCssVariables={false}
      withGlobalClasses={false}
      withStaticClasses={false}
    >
      <QueryClientProvider client={client}>
        <Router base={BASE} searchHook={useExactSearch}>
          <Shell />
        </Router>
      </QueryClientProvider>
    </MantineProvider>
  );
}
