import { expect, test } from "vitest";

import { prefixOf } from "./address";

test.each([
  ["/ui/", ""],
  ["/ui", ""],
  ["/ui/records/01a1", ""],
  ["/tools/ui/records/01a1", "/tools"],
  ["/a/b/ui/store", "/a/b"],
  ["/", ""],
])("the prefix of %s is %j", (path, prefix) => {
  expect(prefixOf(path)).toBe(prefix);
});
