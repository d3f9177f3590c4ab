"use strict";

// Charts are drawn as lines.js says; data-series has the numbers, new after each live piece. The page
// has them in a table, too.

const drawn = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw(place) {
  const series = JSON.parse(place.dataset.series);
  const held = drawn.get(place.id);
  const same = held?.root.isConnected && held.series.length === series.length && held.lines === place.dataset.lines;
  if (same) held.setData(series);
  else {
    if (held) held.destroy();
    const made = new uPlot(lineOptions(place, JSON.parse(place.dataset.lines)), series, place);
    made.lines = place.dataset.lines;
    drawn.set(place.id, made);
  }
}

function drawAll() {
  for (const place of document.querySelectorAll(".chart[data-series]")) draw(place);
}

addEventListener("resize", () => {
  for (const held of drawn.values()) {
    held.setSize({ width: Math.max(200, (held.root.parentElement?.clientWidth ?? 16) - 16), height: 186 });
  }
});
function redraw() {
  for (const held of drawn.values()) held.destroy();
  drawn.clear();
  drawAll();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("console:theme", redraw);
document.addEventListener("console:live", drawAll);
drawAll();
