import "@fontsource-variable/inter/wght.css";
import "@fontsource-variable/jetbrains-mono/wght.css";
import "@mantine/core/styles.layer.css";
import "~/design/tokens.css";
import "~/design/base.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { makeQueryClient } from "~/api/queries";
import { App } from "~/app/App";
import { begin } from "~/app/opening";

const client = makeQueryClient();
begin(client, location.pathname);

// Its address is relative, which names another file after the address of the page has changed.
const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
icon?.setAttribute("href", icon.href);

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no element with the id root");
createRoot(root).render(
  <StrictMode>
    <App client={client} />
  </StrictMode>,
);
