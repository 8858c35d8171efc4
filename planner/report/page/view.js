// The view of a plan as a component. A page may have several of them.
//
//     const view = mountPlan(root);       once
//     view.show(data, parts);             any number of times
//     view.destroy();                     if the view is no longer needed
//
// `root` holds the view's markup (view.html); if it is empty, it gets a copy of the page's <template id="plan-view">. `data` is
// the JSON of PageData, parsed. `parts` are the parts of PlanPageParts, HTML by id: each is put where the view has a place for
// it; the others are left out. Without `parts`, what stands there stays. If another plan is shown, the shown part of the step
// and the stage that somebody chose stay, if the plan has as many stages.

// Gives the elements of the view by the ids of its markup. If the page already has an id, it becomes another one, such as
// "lanes-2", also where other elements refer to it.
function elementsOf(root) {
  const elements = {};
  for (const element of root.querySelectorAll("[id]")) elements[element.id] = element;
  const suffixed = (id, n) => n > 1 ? id + "-" + n : id;
  let n = 1;
  const taken = ([id, element]) => ![null, element].includes(byId(suffixed(id, n)));
  while (Object.entries(elements).some(taken)) ++n;
  for (const [id, element] of Object.entries(elements)) element.id = suffixed(id, n);
  for (const name of ["aria-labelledby", "aria-describedby"]) {
    for (const element of root.querySelectorAll(`[${name}]`)) {
      element.setAttribute(name, suffixed(element.getAttribute(name), n));
    }
  }
  return elements;
}

function mountPlan(root) {
  if (root.childElementCount === 0) root.append(byId("plan-view").content.cloneNode(true));
  const parts = elementsOf(root), ending = new AbortController();
  const timeline = new InteractiveTimeline(parts, () => memory.draw(), (stage) => memory.chooseByHand(stage));
  const memory = new MemoryOfStage(parts, timeline), redraw = () => timeline.redraw();
  for (const id of ["timeline", "tools", "inspector", "keys", "zoom-note", "stage-detail"]) parts[id].hidden = false;
  timeline.listen(ending.signal);
  memory.listen(ending.signal);
  theme.followers.add(redraw);
  return {
    show(data, html = {}) {
      for (const place of root.querySelectorAll("[data-part]")) {
        const text = html[place.dataset.part];
        if (text !== undefined) replaceKeeping(place, fragmentOf(text));
      }
      const plan = new PlanModel(data);
      timeline.show(plan);
      memory.show(plan);
    },
    destroy() {
      ending.abort();
      theme.followers.delete(redraw);
      root.replaceChildren();
    },
  };
}
