import { Menu } from "@mantine/core";
import { IconChevronDown } from "@tabler/icons-react";

import { Button } from "./Button";
import { useCopied } from "./clipboard";
import { asCli, asCurl, asPython, type Call } from "./calls";

/** A menu that copies the current view as a command or as code. */
export function CopyAs({ call }: { call: Call }) {
  const [copied, copy] = useCopied();
  const forms = [
    ["curl", asCurl(call)],
    ["Command line", asCli(call)],
    ["Python", asPython(call)],
  ] as const;
  return (
    <Menu position="bottom-end" shadow="md" width={180}>
      <Menu.Target>
        <Button>
          {copied ? "Copied" : "Copy as"} <IconChevronDown size={14} aria-hidden />
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        {forms.map(([name, text]) =>
          text === null ? null : (
            <Menu.Item key={name} onClick={() => copy(text)}>
              {name}
            </Menu.Item>
          ),
        )}
      </Menu.Dropdown>
    </Menu>
  );
}
