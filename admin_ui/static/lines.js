"use strict";

// Charts of [moments, a column for each of data-lines] with the changes of the page marked in them:
// read by pointer or by arrow keys, made larger by dragging, and a point leads to its requests.

const COLOURS = ["--link", "--busy", "--good", "--bad", "--soft", "--ink"];
const DASHES = [[], [10, 5], [2, 4], [14, 4, 2, 4], [6, 3, 2, 3, 2, 3], [1, 7]];
const WIDTHS = [2, 2, 2.5, 2, 2, 3];
const THIN_DASH = [2, 3];
const SHADE = "26";  // of a colour, in hexadecimal: 15 %
const DAY_S = 86400;
const NEAR_PX = 8;  // less than this is a click, no drag

function iso(seconds) {
  return new Date(seconds * 1000).toISOString();
}

// What distinguishes two ticks: the second, the minute, the day, or both.
function tick(seconds, apart, long) {
  const text = iso(seconds);
  if (apart >= DAY_S) return text.slice(5, 10);
  if (long) return `${text.slice(5, 10)} ${text.slice(11, 16)}`;
  return apart >= 60 ? text.slice(11, 16) : text.slice(11, 19);
}

function amount(value, unit) {
  const sign = Math.abs(value);
  const [size, letter] = sign >= 1e6 ? [1e6, " M"] : sign >= 1e4 ? [1e3, " k"] : [1, ""];
  return `${Number((value / size).toPrecision(6))}${letter} ${unit}`.trim();
}

function told(value, unit) {
  return value == null ? "none" : `${Number(value.toPrecision(4))} ${unit}`.trim();
}

function step(place) {
  return Number(place.closest(".charts").dataset.step);
}

function until(place) {
  return Number(place.closest(".charts").dataset.until);
}

// From where a chart is drawn that shows a thing's whole life.
function since(place) {
  const { whole } = place.closest(".charts").dataset;
  return whole ? Number(whole) : null;
}

function span(plot) {
  return plot.scales.x.max - plot.scales.x.min;
}

// A point without neighbours is part of no line.
function alone(plot, series) {
  const values = plot.data[series];
  return values.flatMap((one, at) => (one != null && values[at - 1] == null && values[at + 1] == null ? [at] : []));
}

// Its number among the colours and dashes, and whether it is thin: each line its own unless said.
function styled(drawing, number) {
  const [style, thin] = drawing.styles?.[number] ?? [number, false];
  const at = style % COLOURS.length;
  return { stroke: colour(COLOURS[at]), width: thin ? 1.25 : WIDTHS[at], dash: thin ? THIN_DASH : DASHES[at] };
}

function lineOptions(place, labels) {
  const unit = place.dataset.unit;
  const drawing = JSON.parse(place.dataset.drawing || "{}");
  const whole = since(place) !== null;
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 } };
  const least = unit === "%" ? 1 : 0;
  return {
    width: Math.max(200, place.clientWidth - 16),
    height: 186,
    padding: [16, (plot) => (span(plot) > DAY_S ? 44 : 28), null, null],
    scales: { x: { range: (_, low, high) => [Math.min(low, since(place) ?? low), Math.max(high + step(place), until(place))] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, least) * 1.1 || 1] } },
    axes: [
      {
        ...axis, size: 26, space: (_plot, _axis, low, high) => (high - low > DAY_S ? 100 : 70),
        values: (plot, ticks, _axis, _space, apart) => ticks.map((one) => tick(one, apart, span(plot) > DAY_S)),
      },
      {
        ...axis, values: (_, ticks) => ticks.map((one) => amount(one, unit)),
        size: (_, shown) => 22 + 7 * Math.max(3, ...(shown ?? []).map((one) => one.length)),
      },
    ],
    series: [
      { label: "UTC", value: (_, value) => (value == null ? "" : iso(value).slice(5, 19).replace("T", " ")) },
      ...labels.map((label, number) => ({
        label, ...styled(drawing, number), points: { show: true, size: 5, filter: alone },
        ...(drawing.stepped ? { paths: uPlot.paths.stepped({ align: -1 }) } : {}),
        value: (_, value, _series, at) => (at == null ? "" : told(value, unit)),
      })),
    ],
    bands: (drawing.bands ?? []).map(([from, to]) => ({ series: [from + 1, to + 1], fill: styled(drawing, from).stroke + SHADE })),
    legend: { markers: { show: false } },
    cursor: { drag: { x: !whole, y: false, setScale: false, dist: NEAR_PX } },
    hooks: { drawAxes: [shadeFailed], draw: [drawMarkers], ready: [dressLegend, followPointer], setSelect: [zoom] },
  };
}

// Beside each label a piece of its line, as it is drawn.
function dressLegend(plot) {
  plot.root.querySelectorAll(".u-legend .u-series").forEach((row, number) => {
    if (!number) return;
    const series = plot.series[number];
    const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const facts = { width: 34, height: 10, class: "swatch", "aria-hidden": "true" };
    for (const [name, value] of Object.entries(facts)) picture.setAttribute(name, value);
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const style = series.dash.join(" ");
    const drawing = { x1: 0, y1: 5, x2: 34, y2: 5, stroke: series._stroke ?? series.stroke(plot), "stroke-width": series.width, "stroke-dasharray": style };
    for (const [name, value] of Object.entries(drawing)) line.setAttribute(name, value);
    picture.append(line);
    row.querySelector("th").prepend(picture);
  });
}

// The step that failed.
function shadeFailed(plot) {
  const failed = plot.root.closest(".charts")?.dataset.failed;
  if (!failed) return;
  const { ctx, bbox } = plot;
  const [from, to] = JSON.parse(failed).map((at) => Math.min(bbox.left + bbox.width, Math.max(bbox.left, plot.valToPos(at, "x", true))));
  ctx.save();
  ctx.fillStyle = colour("--bad") + SHADE;
  ctx.fillRect(from, bbox.top, Math.max(2, to - from), bbox.height);
  ctx.restore();
}

function drawMarkers(plot) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  const [usual, bad] = [colour("--ink"), colour("--bad")];
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.lineWidth = ratio;
  ctx.setLineDash([2 * ratio, 3 * ratio]);
  let free = -Infinity;  // where the next letter has room
  for (const [at, letter, failed] of JSON.parse(plot.root.closest(".charts")?.dataset.markers ?? "[]")) {
    const left = Math.round(plot.valToPos(at, "x", true));
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = failed ? bad : usual;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    free = Math.max(left, free);
    ctx.fillText(letter, free, bbox.top - 4 * ratio);
    free += 10 * ratio;
  }
  ctx.restore();
}

// -- a point: what it says, and where it leads

function followPointer(plot) {
  const place = plot.root.parentElement;
  plot.over.addEventListener("click", () => {
    if (plot.cursor.idx != null && !plot.dragged) openRequests(plot, nearest(plot));
    plot.dragged = false;
  });
  if (place.dataset.requests) plot.over.classList.add("leads");
}

function nearest(plot) {
  const at = plot.cursor.idx;
  const height = plot.posToVal(plot.cursor.top, "y");
  let found = 0, least = Infinity;
  for (let number = 1; number < plot.data.length; number += 1) {
    const value = plot.data[number][at];
    if (value != null && Math.abs(value - height) < least) [found, least] = [number, Math.abs(value - height)];
  }
  return found;
}

function highest(plot) {
  const at = plot.cursor.idx;
  let found = 0;
  for (let number = 1; number < plot.data.length; number += 1) {
    if ((plot.data[number][at] ?? -1) > (found ? plot.data[found][at] : -1)) found = number;
  }
  return found;
}

function openRequests(plot, series) {
  const place = plot.root.parentElement;
  if (!place.dataset.requests || !series) return;
  const { step, kept } = place.closest(".charts").dataset;
  const since = plot.data[0][plot.cursor.idx];
  const until = since + Math.max(60, Number(step));
  if (until < Date.now() / 1000 - Number(kept)) {
    say(`Requests are kept for ${kept / 60} minutes; those of this point are not there any more.`);
    return;
  }
  const within = new URLSearchParams({ order: "slowest", since: iso(since), until: iso(until) });
  location.href = `/requests?${JSON.parse(place.dataset.requests)[series - 1]}&${within}`;
}

function zoom(plot) {
  const { left, width } = plot.select;
  if (width < NEAR_PX) return;
  plot.dragged = true;
  const since = Math.floor(plot.posToVal(left, "x"));
  const until = Math.max(since + 60, Math.ceil(plot.posToVal(left + width, "x")));
  const at = new URL(plot.root.closest(".charts").dataset.at, location.href);
  at.searchParams.delete("range");
  at.searchParams.set("since", iso(since));
  at.searchParams.set("until", iso(until));
  at.hash = "traffic";
  location.href = at;
}

const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

function point(plot, at) {
  const last = plot.data[0].length - 1;
  const number = Math.min(last, Math.max(0, at));
  plot.setCursor({ left: plot.valToPos(plot.data[0][number], "x"), top: 1 });
  const unit = plot.root.parentElement.dataset.unit;
  const values = plot.series.slice(1).map((one, index) => `${one.label} ${told(plot.data[index + 1][number], unit)}`);
  say(`${iso(plot.data[0][number]).slice(11, 19)} UTC: ${values.join(", ")}`);
}

function newestKnown(plot) {
  for (let at = plot.data[0].length - 1; at >= 0; at -= 1) {
    if (plot.data.some((column, number) => number && column[at] != null)) return at;
  }
  return 0;
}

document.addEventListener("keydown", (event) => {
  const place = event.target.closest?.(".chart[data-lines]");
  const plot = place && drawn.get(place.id);
  if (!plot) return;
  if (event.key in STEPS) {
    const from = plot.cursor.idx;
    point(plot, from == null ? newestKnown(plot) : from + STEPS[event.key]);
  } else if (event.key === "Enter" && plot.cursor.idx != null) openRequests(plot, highest(plot));
  else if (event.key === "Escape") plot.setCursor({ left: -10, top: -10 });
  else return;
  event.preventDefault();
});
