// A box that finds fields of the job file by name and meaning, as a combobox with a list (WAI-ARIA): arrow keys move in the
// list, Enter takes a field, Escape closes the list.
const MAX_FOUND = 8;

// Fields whose path or meaning has every word; those whose path begins with the first word come first.
export function found(fields, text) {
  const words = text
    .toLowerCase()
    .split(/[\s.]+/)
    .filter(Boolean);
  if (words.length === 0) return [];
  const rank = (field) => {
    const path = field.path.toLowerCase(),
      last = path.split(".").at(-1);
    if (!words.every((word) => path.includes(word) || field.meaning.toLowerCase().includes(word))) return -1;
    if (path === text.toLowerCase().trim()) return 4;
    return last.startsWith(words.at(-1)) ? 3 : path.includes(words.at(-1)) ? 2 : 1;
  };
  return fields
    .map((field) => [rank(field), field])
    .filter(([r]) => r > 0)
    .sort((a, b) => b[0] - a[0])
    .slice(0, MAX_FOUND)
    .map(([, field]) => field);
}

export function startFinder(input, list, fields, choose) {
  let shown = [],
    at = -1;
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    at = -1;
  };
  const point = (to) => {
    at = shown.length === 0 ? -1 : (to + shown.length) % shown.length;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
    if (at < 0) return;
    input.setAttribute("aria-activedescendant", list.children[at].id);
    list.children[at].scrollIntoView({ block: "nearest" });
  };
  const take = (i) => {
    const field = shown[i];
    input.value = "";
    close();
    if (field !== undefined) choose(field);
  };
  const look = () => {
    shown = found(fields(), input.value);
    const nothing = make(
      "div",
      { class: "facts nothing", role: "option", "aria-disabled": "true" },
      "No field has this in its name or meaning.",
    );
    list.replaceChildren(
      ...(shown.length > 0
        ? shown.map((field, i) =>
            make(
              "div",
              { role: "option", id: "found-" + i, "aria-selected": "false" },
              make("b", {}, field.path),
              make("span", {}, field.meaning),
            ),
          )
        : [nothing]),
    );
    list.hidden = input.value.trim() === "";
    input.setAttribute("aria-expanded", String(!list.hidden));
    at = -1;
    input.removeAttribute("aria-activedescendant");
  };
  input.addEventListener("input", look);
  input.addEventListener("focus", () => {
    if (input.value.trim() !== "") look();
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) look();
      point(event.key === "ArrowDown" ? at + 1 : at < 0 ? shown.length - 1 : at - 1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!list.hidden && shown.length > 0) take(Math.max(0, at));
    } else if (event.key === "Escape") {
      close();
    }
  });
  list.addEventListener("pointerdown", (event) => {
    // before the box loses the focus
    event.preventDefault();
    const option = event.target.closest("[role=option]");
    if (option !== null) take([...list.children].indexOf(option));
  });
}
