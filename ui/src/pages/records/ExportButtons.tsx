import { Menu } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { useMutation } from "@tanstack/react-query";

import { requested } from "~/api/client";
import { useCan } from "~/api/me";
import { Button, explained } from "~/design";
import { save } from "~/design/save";

import type { ListQuery } from "./filters";
import css from "./RecordsPage.module.css";

const FORMS = [
  ["CSV, for a spreadsheet", "/v1/contexts/export-csv", "contexts.csv"],
  ["NDJSON, one object per line", "/v1/contexts/export-ndjson", "contexts.ndjson"],
] as const;

/** Downloads the whole list of a query; the key is sent in a header, so a link would not do. */
export function ExportButtons({ query }: { query: ListQuery }) {
  const isAllowed = useCan("GET /v1/contexts/export-csv");
  const download = useMutation({
    mutationFn: async ([path, name]: readonly [path: string, name: string]) => {
      const search = new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)]));
      const response = await requested(`${path}?${search}`);
      save(await response.blob(), name);
    },
  });
  if (!isAllowed) return null;
  return (
    <>
      {download.isError && (
        <span role="alert" className={css.problem}>
          The export failed: {explained(download.error).meaning}
        </span>
      )}
      <Menu position="bottom-end" shadow="md" width={230}>
        <Menu.Target>
          <Button icon={<IconDownload size={15} aria-hidden />} busy={download.isPending}>
            {download.isPending ? "Exporting" : "Export"}
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          {FORMS.map(([label, path, name]) => (
            <Menu.Item key={path} onClick={() => download.mutate([path, name])}>
              {label}
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
    </>
  );
}
