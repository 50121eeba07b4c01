// Shows in the footer what the browser saw of this page, beside what the server says of it.
addEventListener("load", () => {
  const [page] = performance.getEntriesByType("navigation");
  const seen = document.getElementById("seen");
  if (page && seen) {
    seen.textContent = `Your browser waited ${(page.responseEnd - page.requestStart).toFixed(1)} ms for it.`;
  }
});
