"use strict";

// Charts of [moments, control, the band's other edge, the one compared], or of [moments, a column
// for each of data-lines]; data-series has the numbers, new after each live piece. The page has them
// in a table, too.

const drawn = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function moment(seconds) {
  return `${new Date(seconds * 1000).toISOString().slice(11, 19)} UTC`;
}

const COLOURS = ["--link", "--busy", "--good", "--bad", "--soft", "--ink"];
const DASHES = [[], [8, 3], [2, 3], [12, 3, 2, 3], [5, 5], [1, 5]];
const BORDERS = ["solid", "dashed", "dotted", "double", "groove", "ridge"];

// A point without neighbours is part of no line.
function alone(plot, series) {
  const values = plot.data[series];
  return values.flatMap((one, at) => (one != null && values[at - 1] == null && values[at + 1] == null ? [at] : []));
}

// What distinguishes two ticks: the second, the minute or the day.
function tick(seconds, apart) {
  const text = new Date(seconds * 1000).toISOString();
  return apart >= 86400 ? text.slice(5, 10) : apart >= 60 ? text.slice(11, 16) : text.slice(11, 19);
}

function lineOptions(place, labels) {
  const unit = place.dataset.unit;
  const shown = (_, value, _series, at) =>
    at == null ? "" : value == null ? "none" : `${Number(value.toPrecision(4))} ${unit}`.trim();
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 } };
  const least = unit === "%" ? 1 : 0.01;
  return {
    width: Math.max(200, place.clientWidth),
    height: 200,
    padding: [null, 20, null, null],
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, least) * 1.1] } },
    axes: [
      { ...axis, space: 70, values: (_, ticks, _axis, _space, apart) => ticks.map((one) => tick(one, apart)) },
      { ...axis, size: 70, values: (_, ticks) => ticks.map((one) => `${one} ${unit}`.trim()) },
    ],
    series: [
      { label: "UTC", value: (_, value) => (value == null ? "" : new Date(value * 1000).toISOString().slice(5, 19).replace("T", " ")) },
      ...labels.map((label, number) => ({
        label, stroke: colour(COLOURS[number % COLOURS.length]), width: 2, dash: DASHES[number % DASHES.length],
        points: { show: true, size: 5, filter: alone }, value: shown,
      })),
    ],
    legend: { markers: { width: 2, dash: (_, series) => BORDERS[(series - 1) % BORDERS.length] } },
    cursor: { drag: { x: false, y: false } },
  };
}

function options(place) {
  if (place.dataset.lines) return lineOptions(place, JSON.parse(place.dataset.lines));
  const unit = place.dataset.unit;
  const shown = (_, value) => (value === null ? "none" : `${Number(value.toPrecision(4))} ${unit}`);
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 } };
  return {
    width: Math.max(200, place.clientWidth),
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
  if (held && held.root.isConnected && held.series.length === series.length) held.setData(series);
  else {
    if (held) held.destroy();
    drawn.set(place.id, new uPlot(options(place), series, place));
  }
}

function drawAll() {
  for (const place of document.querySelectorAll(".chart[data-series]")) draw(place);
}

addEventListener("resize", () => {
  for (const held of drawn.values()) {
    held.setSize({ width: Math.max(200, held.root.parentElement?.clientWidth ?? 0), height: 200 });
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const held of drawn.values()) held.destroy();
  drawn.clear();
  drawAll();
});
document.addEventListener("console:live", drawAll);
drawAll();
