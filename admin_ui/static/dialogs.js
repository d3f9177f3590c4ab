"use strict";

// Forms in a drawer beside what they change: a link to a section with data-dialog opens it. What was
// refused is open at once. Without scripts they stand below, and the links lead there.

function drawerOf(id) {
  return id ? document.getElementById(id)?.closest("dialog.drawer") : null;
}

for (const section of document.querySelectorAll("[data-dialog]")) {
  const drawer = document.createElement("dialog");
  drawer.className = "drawer";
  drawer.setAttribute("aria-labelledby", section.getAttribute("aria-labelledby"));
  const close = document.createElement("button");
  Object.assign(close, { type: "button", className: "close", textContent: "Close" });
  close.addEventListener("click", () => drawer.close());
  drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); });
  section.before(drawer);
  drawer.append(section, close);
  if (section.querySelector(".wrong, .problem")) drawer.showModal();
}

function openDrawer(id) {
  const drawer = drawerOf(id);
  if (drawer && !drawer.open) drawer.showModal();
  return Boolean(drawer);
}

document.addEventListener("click", (event) => {
  const to = event.target.closest?.("a[href^='#']");
  if (to && openDrawer(to.hash.slice(1))) event.preventDefault();
});
openDrawer(location.hash.slice(1));
