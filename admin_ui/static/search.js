"use strict";

// Ctrl K: search over everything, and over the menu. Arrow keys choose, Enter goes there.

const WAIT_MS = 120;
const search = { dialog: null, timer: 0, asked: 0, chosen: -1 };

function searchDialog() {
  const dialog = document.createElement("dialog");
  dialog.className = "search";
  dialog.setAttribute("aria-label", "Search");
  const field = document.createElement("input");
  Object.assign(field, { type: "search", placeholder: "Search for a model, route, push, user, setting, page", autocomplete: "off" });
  for (const [name, value] of Object.entries({
    role: "combobox", "aria-label": "Search", "aria-controls": "found", "aria-expanded": "false", "aria-autocomplete": "list",
  })) field.setAttribute(name, value);
  const list = document.createElement("ul");
  Object.assign(list, { id: "found", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Results");
  dialog.append(field, list);
  document.body.append(dialog);
  field.addEventListener("input", () => {
    clearTimeout(search.timer);
    search.timer = setTimeout(lookUp, WAIT_MS);
  });
  field.addEventListener("keydown", chooseByKey);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  return { dialog, field, list };
}

function openSearch() {
  search.dialog ??= searchDialog();
  const { dialog, field } = search.dialog;
  if (!dialog.open) dialog.showModal();
  field.select();
}

async function lookUp() {
  const q = search.dialog.field.value.trim();
  const number = search.asked += 1;
  if (!q) { showResults([]); return; }
  const pages = [...document.querySelectorAll("#menu nav a")].map((one) => ({ name: one.textContent.trim(), kind: "page", about: "", to: one.getAttribute("href") }));
  const near = pages.filter((one) => one.name.toLowerCase().includes(q.toLowerCase()));
  let items = [];
  try {
    const response = await fetch(`/search.json?${new URLSearchParams({ q })}`);
    if (response.ok) items = (await response.json()).items;
  } catch {
    say("The search does not answer");
  }
  if (number === search.asked) showResults([...near, ...items]);
}

function showResults(items) {
  const { field, list } = search.dialog;
  list.replaceChildren(...items.map((one, number) => {
    const row = document.createElement("li");
    row.setAttribute("role", "option");
    row.id = `found-${number}`;
    row.dataset.to = one.to;
    row.append(Object.assign(document.createElement("b"), { textContent: one.name }));
    row.append(Object.assign(document.createElement("small"), { textContent: ` ${one.kind}${one.about ? `, ${one.about}` : ""}` }));
    row.addEventListener("click", () => { location.href = one.to; });
    return row;
  }));
  list.hidden = !items.length;
  field.setAttribute("aria-expanded", String(Boolean(items.length)));
  choose(items.length ? 0 : -1);
  say(items.length ? `${items.length} results` : "Nothing found");
}

function choose(number) {
  const { field, list } = search.dialog;
  const rows = [...list.children];
  search.chosen = rows.length ? (number + rows.length) % rows.length : -1;
  rows.forEach((row, at) => row.setAttribute("aria-selected", String(at === search.chosen)));
  if (search.chosen < 0) field.removeAttribute("aria-activedescendant");
  else {
    field.setAttribute("aria-activedescendant", `found-${search.chosen}`);
    rows[search.chosen].scrollIntoView({ block: "nearest" });
  }
}

function chooseByKey(event) {
  if (event.key === "ArrowDown") choose(search.chosen + 1);
  else if (event.key === "ArrowUp") choose(search.chosen - 1);
  else if (event.key === "Enter") {
    const row = search.dialog.list.children[search.chosen];
    location.href = row ? row.dataset.to : `/search?${new URLSearchParams({ q: search.dialog.field.value })}`;
  } else if (event.key === "Escape") search.dialog.dialog.close();  // a search field would only be emptied
  else return;
  event.preventDefault();
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openSearch();
  }
});
document.querySelector("a.search-link")?.addEventListener("click", (event) => {
  event.preventDefault();
  openSearch();
});
