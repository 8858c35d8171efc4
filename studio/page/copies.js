// What people take along: the plan as a job file, as flags or files of other frameworks, or as a link. Uses the elements of the
// plan view (planner/report/page/shared.js).
import { post } from "./asker.js";

const FORMATS = [
  ["job", "Job file", "to train it: lynxctl submit -f"],
  ["megatron", "Megatron-LM", "arguments"],
  ["deepspeed", "DeepSpeed", "configuration"],
  ["torchtitan", "torchtitan", "configuration"],
  ["link", "Link", "opens this same plan"],
];

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // the browser does not allow it; the dialog has the text to select
  }
}

export class Copies {
  // `state()`: what is shown now; `link()`: its address; say(text): tells what was done.
  constructor({ state, link, say }) {
    Object.assign(this, { state, link, say });
    this.button = byId("copy");
    this.menu = byId("copy-menu");
    this.menu.append(
      ...FORMATS.map(([format, name, words]) => {
        const item = make(
          "button",
          { type: "button", role: "menuitem", tabindex: "-1", "data-format": format },
          make("b", {}, name),
          make("span", {}, words),
        );
        item.addEventListener("click", () => {
          this.#close(true);
          this.#take(format, name);
        });
        return item;
      }),
    );
    this.button.addEventListener("click", () => (this.menu.hidden ? this.#open(0) : this.#close(true)));
    this.button.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      this.#open(event.key === "ArrowDown" ? 0 : -1);
    });
    this.menu.addEventListener("keydown", (event) => this.#onKey(event));
    document.addEventListener("pointerdown", (event) => {
      if (!event.target.closest(".menu")) this.#close(false);
    });
    this.menu.addEventListener("focusout", (event) => {
      if (event.relatedTarget !== null && !event.relatedTarget.closest(".menu")) this.#close(false);
    });
  }

  #open(at) {
    this.menu.hidden = false;
    this.button.setAttribute("aria-expanded", "true");
    [...this.menu.children].at(at).focus();
  }

  #close(back) {
    if (this.menu.hidden) return;
    this.menu.hidden = true;
    this.button.setAttribute("aria-expanded", "false");
    if (back) this.button.focus();
  }

  #onKey(event) {
    const items = [...this.menu.children],
      at = items.indexOf(document.activeElement);
    if (event.key === "Escape") return this.#close(true);
    if (event.key === "Tab") return this.#close(false);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    items.at(to === items.length ? 0 : to).focus();
  }

  async #take(format, name) {
    if (format === "link") {
      const link = this.link();
      if (await toClipboard(link))
        return this.say("The link is copied. It opens this plan where a studio runs at the same address.");
      return this.#dialog("Link", [{ name: "link", text: link }], [], false);
    }
    try {
      const { files, notExpressed, error, infeasible } = await post("api/export", { state: this.state(), format });
      if (error ?? infeasible) return this.#dialog(name, [], [], false, error?.text ?? infeasible.reason);
      const copied = files.length > 0 && (await toClipboard(files[0].text));
      this.#dialog(name, files, notExpressed ?? [], copied);
    } catch (failure) {
      this.#dialog(name, [], [], false, failure.message);
    }
  }

  #dialog(name, files, notExpressed, copied, wrong) {
    const dialog = byId("export"),
      close = make("button", { type: "button", class: "main" }, "Close");
    close.addEventListener("click", () => dialog.close());
    const told =
      wrong ??
      (copied
        ? `${files.length > 1 ? files[0].name : "The text"} is copied.`
        : "The browser does not let the page copy. Select the text, and copy it.");
    dialog.replaceChildren(
      make("h2", { id: "export-title" }, "As " + name),
      make("p", { class: wrong ? "error" : "facts", role: "status" }, told),
      ...files.map((file) => this.#file(file)),
      notExpressed.length > 0 ? make("h3", {}, name + " cannot say") : null,
      notExpressed.length > 0
        ? make("ul", { class: "not-expressed" }, ...notExpressed.map((text) => make("li", {}, text)))
        : null,
      make("p", { class: "buttons" }, close),
    );
    dialog.addEventListener("close", () => this.button.focus(), { once: true });
    dialog.showModal();
  }

  #file(file) {
    const copy = make("button", { type: "button", class: "quiet" }, "Copy"),
      save = make("a", { class: "button quiet", download: file.name, href: "#" }, "Save");
    copy.setAttribute("aria-label", "Copy " + file.name);
    save.setAttribute("aria-label", "Save " + file.name);
    copy.addEventListener("click", async () => {
      setText(copy, (await toClipboard(file.text)) ? "Copied" : "Select and copy");
    });
    save.addEventListener("click", () => {
      const address = URL.createObjectURL(new Blob([file.text], { type: "text/plain" }));
      save.href = address;
      setTimeout(() => URL.revokeObjectURL(address), 10000);
    });
    return make(
      "section",
      { class: "file", "aria-label": file.name },
      make("div", { class: "file-head" }, make("h3", {}, file.name), copy, save),
      make("pre", { tabindex: "0", role: "group", "aria-label": "Text of " + file.name }, file.text),
    );
  }
}
