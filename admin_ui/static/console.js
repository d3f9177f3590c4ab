"use strict";

// -- small things on a page; done again after each piece that comes in

const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});

function dress(root) {
  const here = zone.resolvedOptions().timeZone;
  for (const time of root.querySelectorAll("time[datetime]")) {
    if (here !== "UTC") time.dataset.local = clock.format(new Date(time.dateTime));
  }
  for (const button of root.querySelectorAll("button.copy")) button.hidden = false;
  for (const table of root.querySelectorAll(".table table")) {
    if (!table.closest("details:not([open])")) label(table);
  }
}

// What is folded is labelled when it is opened: the tables of charts are long.
document.addEventListener("toggle", (event) => {
  if (event.target.open) for (const table of event.target.querySelectorAll(".table table")) label(table);
}, true);

// Narrow windows stack a row's cells, each with its column's name; the roles say it is a table still.
function label(table) {
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.replace(/[ ▲▼]+$/, ""));
  table.setAttribute("role", "table");
  for (const part of [table.tHead, ...table.tBodies]) part.setAttribute("role", "rowgroup");
  for (const row of table.rows) {
    row.setAttribute("role", "row");
    [...row.cells].forEach((cell, index) => {
      const head = cell.parentElement.parentElement === table.tHead;
      cell.setAttribute("role", head ? "columnheader" : cell.tagName === "TH" ? "rowheader" : "cell");
      if (!head && cell.colSpan === 1) cell.dataset.label = names[index];
    });
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const text = button.dataset.text ?? button.parentElement.querySelector("pre").textContent;
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.parentElement.querySelector("pre, .mono"));
    button.textContent = "Press Ctrl+C";
  }
});

const menuButton = document.getElementById("menu-button");
if (menuButton) {
  menuButton.hidden = false;
  document.documentElement.classList.add("folds");
  menuButton.addEventListener("click", () => {
    const open = menuButton.getAttribute("aria-expanded") !== "true";
    menuButton.setAttribute("aria-expanded", String(open));
    document.documentElement.classList.toggle("unfolded", open);
  });
}

// Twice the same is two pushes: a form is sent once.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

function say(text) {
  const place = document.getElementById("say");
  if (place && text) place.textContent = text;
}

// -- live: one stream for this tab; while it cannot be had, the page is asked for every 5 s

const POLL_MS = 5000;
const live = { source: null, at: "/", after: "0", poll: 0 };

function swap(html, select) {
  return htmx.swap({
    text: html, target: "#live", select, swap: select ? "outerMorph" : "innerMorph",
    sourceElement: document.getElementById("live"),
  }).then(() => {
    dress(document);
    document.dispatchEvent(new CustomEvent("console:live"));
  });
}

function state(kind, words) {
  const place = document.getElementById("live-state");
  place.className = `live-state ${kind}`;
  place.querySelector(".words").textContent = words;
}

async function poll() {
  try {
    const response = await fetch(live.at, { headers: { Accept: "text/html" } });
    if (response.redirected) location.reload();
    else if (response.ok) await swap(await response.text(), "#live");
    else if (response.status === 503) state("away", "no response now; reload the page for the reason");
  } catch {
    state("away", "no connection");
  }
}

function stopPolling() {
  clearInterval(live.poll);
  live.poll = 0;
}

function lost() {
  state("away", "reconnecting");
  live.poll ||= setInterval(poll, POLL_MS);
  if (live.source.readyState === EventSource.CLOSED) {
    setTimeout(() => { if (!document.hidden) follow(); }, POLL_MS);
  }
}

function remember(event) {
  if (event.lastEventId) live.after = event.lastEventId;
}

function follow(look = false) {  // look: what is shown is old, whatever happened meanwhile
  live.source?.close();
  const asked = new URLSearchParams({ at: live.at, after: live.after });
  if (look) asked.set("look", "1");
  const source = new EventSource(`/live?${asked}`);
  live.source = source;
  source.onopen = () => {
    stopPolling();
    state("on", "live");
  };
  source.onerror = () => { if (live.source === source) lost(); };
  source.addEventListener("live", (event) => {
    remember(event);
    const told = JSON.parse(event.data);
    swap(told.html);
    say(told.say);
  });
  source.addEventListener("over", () => location.reload());
  source.addEventListener("reload", () => location.reload());
}

function unfollow() {
  live.source?.close();
  stopPolling();
}

dress(document);
const place = document.getElementById("live-state");
if (place) {
  live.at = place.dataset.at;  // not the address: a refused form stands at its own
  live.after = place.dataset.after;
  follow();
  document.addEventListener("visibilitychange", () => (document.hidden ? unfollow() : follow(true)));
  document.addEventListener("htmx:after:history:replace", () => {
    live.at = location.pathname + location.search;
    follow();
  });
  addEventListener("pagehide", unfollow);
}
document.addEventListener("htmx:after:swap", () => dress(document));
