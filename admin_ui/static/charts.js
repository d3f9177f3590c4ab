"use strict";

// Charts of [moments, control, the band's other edge, the one compared], or those of lines.js;
// data-series has the numbers, new after each live piece. The page has them in a table, too.

const drawn = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function moment(seconds) {
  return `${new Date(seconds * 1000).toISOString().slice(11, 19)} UTC`;
}

function options(place) {
  if (place.dataset.lines) return lineOptions(place, JSON.parse(place.dataset.lines));
  const unit = place.dataset.unit;
  const shown = (_, value) => (value === null ? "none" : `${Number(value.toPrecision(4))} ${unit}`);
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 } };
  return {
    width: Math.max(200, place.clientWidth - 16),  // without its padding
    height: 200,
    padding: [null, 40, null, null],  // half of the last moment stands there
    scales: { x: { time: !place.dataset.over }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, 0.01) * 1.1] } },
    axes: [{ ...axis, space: 100, values: (_, ticks) => ticks.map(place.dataset.over ? String : moment) }, { ...axis, size: 70, values: (_, ticks) => ticks.map((one) => `${one} ${unit}`) }],
    series: [
      { label: "at" },
      { label: place.dataset.control || "stable", stroke: colour("--soft"), width: 2, value: shown },
      { label: place.dataset.edge || "limit", stroke: colour("--soft"), width: 1, dash: [2, 4], value: shown },
      { label: place.dataset.tried || "candidate", stroke: colour("--link"), width: 2, dash: [8, 3], points: { show: true, size: 5 }, value: shown },
    ],
    bands: [{ series: [2, 1], fill: `${colour("--soft")}26` }],
    legend: { live: false },
    cursor: { drag: { x: false, y: false } },
  };
}

function draw(place) {
  const series = JSON.parse(place.dataset.series);
  const held = drawn.get(place.id);
  const same = held?.root.isConnected && held.series.length === series.length && held.lines === place.dataset.lines;
  if (same) held.setData(series);
  else {
    if (held) held.destroy();
    const made = new uPlot(options(place), series, place);
    made.lines = place.dataset.lines;
    drawn.set(place.id, made);
  }
}

function drawAll() {
  for (const place of document.querySelectorAll(".chart[data-series]")) draw(place);
}

addEventListener("resize", () => {
  for (const held of drawn.values()) {
    held.setSize({ width: Math.max(200, (held.root.parentElement?.clientWidth ?? 16) - 16), height: 200 });
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
