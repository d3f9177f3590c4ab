"use strict";

// The responses of a decoupled model, each shown when it comes; the stream can be stopped.

const streamForm = document.querySelector("form.streams");
const streaming = { stop: null };

streamForm?.addEventListener("submit", async (event) => {
  event.preventDefault();
  event.stopPropagation();  // it may be sent more than once
  if (streaming.stop) return;
  const place = responsesOf(streamForm);
  streaming.stop = new AbortController();
  place.stop.hidden = false;
  const began = performance.now();
  try {
    await followStream(new URLSearchParams(new FormData(streamForm)), place, began);
    place.told(`${place.list.children.length} responses in ${Math.round(performance.now() - began)} ms`);
  } catch (error) {
    place.told(error.name === "AbortError" ? "Stopped" : error.message);
  }
  place.stop.hidden = true;
  streaming.stop = null;
});

function responsesOf(form) {
  form.querySelector(".responses")?.remove();
  const home = form.appendChild(document.createElement("div"));
  home.className = "responses";
  const state = home.appendChild(document.createElement("p"));
  state.setAttribute("role", "status");
  const stop = home.appendChild(document.createElement("button"));
  Object.assign(stop, { type: "button", textContent: "Stop", hidden: true });
  stop.addEventListener("click", () => streaming.stop?.abort());
  const list = home.appendChild(document.createElement("ol"));
  return { list, stop, told: (text) => { state.textContent = text; } };
}

async function followStream(body, place, began) {
  const response = await fetch(streamForm.action, {
    method: "POST", body, headers: { Accept: "text/event-stream" }, signal: streaming.stop.signal,
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
    for (const line of lines) if (line.startsWith("data:")) showResponse(line.slice(5).trim(), place, began);
  }
}

function showResponse(text, place, began) {
  const item = place.list.appendChild(document.createElement("li"));
  item.appendChild(document.createElement("small")).textContent = `${Math.round(performance.now() - began)} ms`;
  item.appendChild(document.createElement("code")).textContent = ` ${text.slice(0, 2000)}`;
  place.told(`${place.list.children.length} responses so far`);
}
