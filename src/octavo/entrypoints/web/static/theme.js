// Not a module: it runs before the first paint, so that a chosen theme never flashes.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("octavo.theme");
  } catch {
    // Storage may be forbidden; the system's theme holds then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
