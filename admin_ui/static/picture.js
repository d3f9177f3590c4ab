"use strict";

// Where a tensor may be a picture, a field to choose one: it is made as large as the model wants
// it, here in the browser, and written into the values as "base64:" and its bytes.

const SCALES = {
  "0 to 1": (value) => value / 255,
  "-1 to 1": (value) => value / 127.5 - 1,
  "0 to 255": (value) => value,
};

for (const place of document.querySelectorAll(".image")) offer(place);

function offer(place) {
  const file = labelled("Picture", Object.assign(document.createElement("input"), { type: "file", accept: "image/*" }));
  const scale = labelled("Values", document.createElement("select"));
  const real = place.dataset.type === "FP32";
  for (const name of real ? Object.keys(SCALES) : ["0 to 255"]) scale.field.append(new Option(name, name));
  const canvas = document.createElement("canvas");
  canvas.hidden = true;
  place.append(file.label, scale.label, canvas);
  place.hidden = false;
  const take = () => {
    if (file.field.files[0]) read(place, file.field.files[0], SCALES[scale.field.value], canvas);
  };
  file.field.addEventListener("change", take);
  scale.field.addEventListener("change", take);
}

function labelled(text, field) {
  const label = document.createElement("label");
  label.append(text, field);
  return { label, field };
}

async function read(place, file, scaled, canvas) {
  const { width, height, channels, first, type } = place.dataset;
  Object.assign(canvas, { width: Number(width), height: Number(height), hidden: false });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(await createImageBitmap(file), 0, 0, canvas.width, canvas.height);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const made = values(data, Number(channels), first === "true", scaled, type);
  document.getElementsByName(place.dataset.for)[0].value = `base64:${base64(new Uint8Array(made.buffer))}`;
}

function values(pixels, channels, first, scaled, type) {
  const count = pixels.length / 4;
  const made = type === "FP32" ? new Float32Array(count * channels) : new Uint8Array(count * channels);
  for (let at = 0; at < count; at += 1) {
    for (let channel = 0; channel < channels; channel += 1) {
      made[first ? channel * count + at : at * channels + channel] = scaled(shade(pixels, at * 4, channel, channels));
    }
  }
  return made;
}

function shade(pixels, at, channel, channels) {
  if (channels === 3) return pixels[at + channel];
  return 0.299 * pixels[at] + 0.587 * pixels[at + 1] + 0.114 * pixels[at + 2];
}

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}
