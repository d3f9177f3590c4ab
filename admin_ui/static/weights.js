"use strict";

// Beside each weight a slider. Whatever one of them is moved to, the others share what is left as
// they shared it before; in hundredths of a percent, so that nothing is lost by rounding. A number
// that cannot be a weight stays as it was typed, for the browser to refuse: the click that sends
// the form also ends the typing, and nobody would see what else it had become.

const WHOLE = 10000;
const fields = [...document.querySelectorAll(".weights input[type=number]")];
const sliders = fields.map(slider);

function slider(field, index) {
  const made = document.createElement("input");
  const label = field.labels[0].textContent;
  Object.assign(made, { type: "range", min: "0", max: "100", step: "1", value: field.value });
  made.setAttribute("aria-label", `${label}, slider`);
  made.addEventListener("input", () => moved(index, made.value));
  field.addEventListener("change", () => field.validity.valid && moved(index, field.value));
  field.after(made);
  return made;
}

function moved(index, text) {
  const shares = fields.map((field) => Math.round(Number(field.value) * 100) || 0);
  const wanted = Math.min(WHOLE, Math.max(0, Math.round(Number(text) * 100) || 0));
  show(shared(shares, index, wanted));
}

function shared(shares, index, wanted) {
  const others = shares.map((_, at) => at).filter((at) => at !== index);
  const before = others.reduce((sum, at) => sum + shares[at], 0);
  let left = WHOLE - wanted;
  const made = [...shares];
  made[index] = others.length ? wanted : WHOLE;
  others.forEach((at, place) => {
    const last = place === others.length - 1;
    const part = before ? (shares[at] * (WHOLE - wanted)) / before : (WHOLE - wanted) / others.length;
    made[at] = last ? left : Math.min(left, Math.round(part));
    left -= made[at];
  });
  return made;
}

function show(shares) {
  shares.forEach((share, at) => {
    fields[at].value = String(share / 100);
    sliders[at].value = String(share / 100);
    sliders[at].setAttribute("aria-valuetext", `${share / 100} percent`);
  });
}
