"use strict";
const form = document.querySelector("form");
if (form) {
  const examples = [...document.querySelectorAll("details")];
  const count = form.querySelector("output");
  const filter = () => {
    const { cause, kind, fidelity } = Object.fromEntries(new FormData(form));
    let shown = 0;
    for (const example of examples) {
      const { causes, kinds, fidelity: own } = example.dataset;
      example.hidden =
        (cause && !JSON.parse(causes).includes(cause)) ||
        (kind && !JSON.parse(kinds).includes(kind)) ||
        (fidelity && own !== fidelity);
      shown += example.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${examples.length} shown`;
  };
  form.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  filter();
}
