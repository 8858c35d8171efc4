// The colours' button, then the start.
function startTheme() {
  const button = $("theme"), names = ["auto", "light", "dark"];
  const words = { auto: "Auto", light: "Light", dark: "Dark" };
  const apply = (name) => {
    if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
    button.textContent = words[name];
    button.setAttribute("aria-label", "Colours: " + (name === "auto" ? "as the system" : name));
    theme.colors = {};
    redraw();
  };
  button.hidden = false;
  let at = 0;
  button.addEventListener("click", () => { at = (at + 1) % names.length; apply(names[at]); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { theme.colors = {}; redraw(); });
}

startTheme();
startTimeline();
startMemory();
redraw();
