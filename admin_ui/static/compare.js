"use strict";

// One text to two language models at once: both answers as they come, with the time to the first piece
// of text and pieces a second. A piece has a token or several: tokens are in the charts.

const both = document.querySelector("form.both");

both.addEventListener("submit", async (event) => {
  event.preventDefault();
  event.stopPropagation();  // it may be sent more than once
  const button = both.querySelector("button[type=submit]");
  const pair = JSON.parse(both.elements.target.dataset.pair);
  const places = [...document.querySelectorAll(".answers > div")];
  button.disabled = true;
  await Promise.all(pair.map((target, number) => ask(target, places[number])));
  button.disabled = false;
});

async function ask(target, place) {
  const body = new URLSearchParams(new FormData(both));
  body.set("target", target);
  const [state, answer] = [place.querySelector("[role=status]"), place.querySelector(".said")];
  answer.textContent = "";
  state.textContent = "Waiting for the first piece of text";
  const began = performance.now();
  let first = 0, count = 0;
  try {
    for await (const piece of pieces(body)) {
      if (piece.error) throw new Error(piece.error);
      first ||= performance.now() - began;
      count += 1;
      answer.textContent += piece.text_output ?? "";
      state.textContent = words(first, count, performance.now() - began);
    }
  } catch (error) {
    state.textContent = error.message;
  }
}

function words(first, count, took) {
  const rate = took > first ? ((count - 1) * 1000) / (took - first) : 0;
  return `First piece after ${Math.round(first)} ms, ${count} pieces of text, ${rate.toFixed(1)} pieces a second`;
}

async function* pieces(body) {
  const response = await fetch(both.action, { method: "POST", body, headers: { Accept: "text/event-stream" } });
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
    for (const line of lines) if (line.startsWith("data:") && !line.includes("[DONE]")) yield JSON.parse(line.slice(5));
  }
}
