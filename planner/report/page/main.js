"use strict";
// The page of one plan: its view, and the colours' button.
startTheme(byId("theme"));
mountPlan(document.querySelector("main")).show(JSON.parse(byId("data").textContent));
