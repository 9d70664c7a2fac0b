/** Let the browser save a file. */
export function save(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The download has begun with the click, but some browsers read the address a little later.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
