// The view of a plan as a component.
//
//     const view = mountPlan(root);       once
//     view.show(data, parts);             any number of times
//
// `root` holds the view's markup (view.html); if it is empty, it gets a copy of the page's <template id="plan-view">. `data` is
// PlanParts::data, parsed. `parts` are the parts of PlanPageParts, HTML by id: each is put where the view has a place for
// it; the others are left out. Without `parts`, what stands there stays. If another plan is shown, the shown part of the step
// and the stage that somebody chose stay, if the plan has as many stages.
function mountPlan(root) {
  if (root.childElementCount === 0) root.append(byId("plan-view").content.cloneNode(true));
  const parts = Object.fromEntries([...root.querySelectorAll("[id]")].map((element) => [element.id, element]));
  const timeline = new InteractiveTimeline(parts, () => memory.draw(), (stage) => memory.choose(stage, true));
  const memory = new MemoryOfStage(parts, timeline);
  for (const id of ["timeline", "tools", "inspector", "keys", "zoom-note", "stage-detail"]) parts[id].hidden = false;
  timeline.listen();
  memory.listen();
  theme.followers.add(() => timeline.redraw());
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
  };
}
