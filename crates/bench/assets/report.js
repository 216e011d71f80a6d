"use strict";
// Folded parts are open on paper, and folded again afterwards.
const folded = [];
addEventListener("beforeprint", () => document.querySelectorAll("details:not([open])").forEach((one) => {
  folded.push(one);
  one.open = true;
}));
addEventListener("afterprint", () => folded.splice(0).forEach((one) => { one.open = false; }));
