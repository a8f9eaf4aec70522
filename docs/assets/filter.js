// Each <input data-filters> shows the rows of the table after it whose text has all of its words.
document.addEventListener("input", ({ target }) => {
  if (!target.matches("input[data-filters]")) return;
  const words = target.value.toLowerCase().split(/\s+/).filter(Boolean);
  const table = document.getElementById(target.dataset.filters).querySelector("table");
  for (const row of table.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
});
