"use strict";

// A picture sent as it is to a model that takes one as its body. What the model sees is drawn:
// labels as bars, boxes in the picture.

const WIDEST = 800;
const MOST_BYTES = 16 * 2 ** 20;
const photoForm = document.querySelector("form.photo");

if (photoForm) {
  photoForm.closest("section").hidden = false;
  photoForm.addEventListener("submit", async (event) => {
    event.preventDefault();
    event.stopPropagation(); // it may be sent more than once
    const place = seenPlace();
    try {
      await showSeen(photoForm.querySelector("input[type=file]").files[0], place);
    } catch (error) {
      place.told(error.message);
    }
  });
}

function seenPlace() {
  photoForm.querySelector(".seen")?.remove();
  const home = photoForm.appendChild(document.createElement("div"));
  home.className = "seen";
  const state = home.appendChild(document.createElement("p"));
  state.setAttribute("role", "status");
  return { home, told: (text) => { state.textContent = text; } };
}

async function showSeen(file, place) {
  if (!file) throw new Error("Choose a picture");
  if (file.size > MOST_BYTES) throw new Error("A picture has 16 MiB at most here");
  place.told("Sending");
  const fields = new URLSearchParams(new FormData(photoForm));
  fields.set("kind", file.type);
  const headers = { Accept: "application/json", "Content-Type": "application/octet-stream", "X-Form-Fields": String(fields) };
  const response = await fetch(photoForm.action, { method: "POST", body: file, headers });
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(found.error?.message ?? found.error ?? `HTTP ${response.status}`);
  if (found.error) throw new Error(found.error);
  place.told(`${found.model} version ${found.version}, ${found.took_ms} ms`);
  drawPicture(await createImageBitmap(file), found.detections, place.home);
  drawBars(found.labels.concat(found.detections), place.home);
}

function drawPicture(bitmap, detections, home) {
  const scale = Math.min(1, WIDEST / bitmap.width);
  const canvas = home.appendChild(document.createElement("canvas"));
  canvas.width = Math.round(bitmap.width * scale);
  canvas.height = Math.round(bitmap.height * scale);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `The picture${detections.length ? ` with ${detections.length} boxes` : ""}`);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  context.font = "600 14px system-ui, sans-serif";
  context.lineWidth = 3;
  for (const one of detections) drawBox(context, one, scale);
}

function drawBox(context, one, scale) {
  const [left, top, right, bottom] = one.box.map((side) => side * scale);
  const color = `hsl(${((one.class ?? 0) * 137 + 210) % 360} 85% 42%)`;
  const text = `${one.label} ${percent(one.score)}`;
  context.strokeStyle = context.fillStyle = color;
  context.strokeRect(left, top, right - left, bottom - top);
  const above = Math.max(top, 20);
  context.fillRect(left - 1.5, above - 20, context.measureText(text).width + 10, 20);
  context.fillStyle = "white";
  context.fillText(text, left + 4, above - 5);
}

function drawBars(rows, home) {
  const list = home.appendChild(document.createElement("ol"));
  list.className = "bars";
  for (const one of rows) {
    const item = list.appendChild(document.createElement("li"));
    const name = item.appendChild(document.createElement("span"));
    name.textContent = one.label;
    const bar = item.appendChild(document.createElement("meter"));
    Object.assign(bar, { min: 0, max: 1, value: one.score });
    bar.setAttribute("aria-label", `Score of ${one.label}`);
    item.appendChild(document.createElement("b")).textContent = percent(one.score);
  }
}

function percent(score) {
  return score >= 0 && score <= 1 ? `${(score * 100).toFixed(1)} %` : score.toPrecision(4);
}
