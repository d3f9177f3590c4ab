"use strict";

// The conversation without loading the page anew: the answer is shown as it comes, and can be stopped.

const form = document.querySelector("form.chat");
const said = document.getElementById("said");
const talking = { stop: null };

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  event.stopPropagation();  // it may be sent more than once
  const text = form.elements.message.value.trim();
  if (!text || talking.stop) return;
  const asked = new URLSearchParams(new FormData(form));
  tell("user", "You", text);
  const place = tell("assistant", document.querySelector(".trail li:last-child").textContent.trim(), "");
  form.elements.message.value = "";
  busy(new AbortController());
  try {
    await answer(asked, place);
  } catch (error) {
    if (error.name !== "AbortError") wrong(place, error.message);
  }
  keep(text, place.textContent);
  busy(null);
});

form.querySelector("button.stop").addEventListener("click", () => talking.stop?.abort());

function tell(role, who, text) {
  const item = said.appendChild(document.createElement("li"));
  item.className = role;
  item.appendChild(document.createElement("b")).textContent = who;
  const place = item.appendChild(document.createElement("p"));
  place.textContent = text;
  return place;
}

function busy(stop) {
  talking.stop = stop;
  form.querySelector("button.stop").hidden = !stop;
  form.querySelector("button[type=submit]").disabled = Boolean(stop);
  said.setAttribute("aria-busy", String(Boolean(stop)));
  if (!stop) form.elements.message.focus();
}

async function answer(asked, place) {
  const response = await fetch(form.action, {
    method: "POST", body: asked, headers: { Accept: "text/event-stream" }, signal: talking.stop.signal,
  });
  if (!response.ok || !response.headers.get("content-type")?.startsWith("text/event-stream")) {
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    throw new Error(page.querySelector(".wrong, .problem")?.textContent.trim() || `HTTP ${response.status}`);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) take(line.trim(), place);
  }
}

function take(line, place) {
  if (!line.startsWith("data: ") || line === "data: [DONE]") return;
  const piece = JSON.parse(line.slice(6));
  if (piece.error) throw new Error(piece.error.message);
  const choice = piece.choices?.[0];
  place.textContent += choice?.delta?.content ?? choice?.text ?? "";
  place.scrollIntoView({ block: "nearest" });
}

function wrong(place, words) {
  const told = place.parentElement.appendChild(document.createElement("p"));
  told.className = "problem";
  told.setAttribute("role", "alert");
  told.textContent = words;
}

function keep(text, told) {
  const history = JSON.parse(form.elements.history.value);
  history.push({ role: "user", content: text });
  if (told) history.push({ role: "assistant", content: told });
  form.elements.history.value = JSON.stringify(history);
}
