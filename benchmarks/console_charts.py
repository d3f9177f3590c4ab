"""How long pages with charts take in a browser: `python -m benchmarks.console_charts`.

600 versions, 100 requests a second spread over all of them, an hour of whose series is there;
Chromium without a window, on the same machine as the server.

From the beginning of the navigation until the page's load event, by when the charts are drawn, as
the browser's Performance API tells it; and how long one chart of six lines with 200 points takes to
draw. Beside it the control process's CPU time meanwhile, by its threads' clock, which a busy
machine disturbs less. Two minutes; 1 when a median is above 200 ms, or that of the chart above
40 ms.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.bursts import cpu_ns
from benchmarks.console_yard import ROUTED, VERSIONS, Yard, say, serve
from benchmarks.control_load import MODELS, PUSHED, fill_hour, spread

MOST_LOAD_MS, MOST_DRAW_MS = 200, 40
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
LOADED = """
() => {
  const [page] = performance.getEntriesByType("navigation");
  return page.loadEventEnd - page.startTime;
}
"""
DRAW = """
() => {
  const at = Array.from({length: 200}, (_, number) => 1.7e9 + number * 10);
  const height = (line) => (_, x) => 50 + 40 * Math.sin(x / 9 + line);
  const lines = Array.from({length: 6}, (_, line) => at.map(height(line)));
  const place = document.querySelector(".chart[data-lines]").cloneNode();
  place.id = "measured";
  place.dataset.lines = JSON.stringify(lines.map((_, line) => `line ${line}`));
  place.dataset.series = JSON.stringify([at, ...lines]);
  document.querySelector(".charts").append(place);
  const began = performance.now();
  draw(place);
  return new Promise((done) => queueMicrotask(() => done(performance.now() - began)));
}
"""
"""Append a chart to a page that has some, and say in how many ms it was drawn."""


def main() -> int:
    arguments = _arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yard = stack.enter_context(serve(folder, arguments.models, PUSHED))
        stack.enter_context(spread(yard, arguments.models))
        say(f"settling for {arguments.settle:g} s")
        time.sleep(arguments.settle)
        fill_hour(yard)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=FLAGS,
        )
        stack.callback(browser.close)
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        _keep_session(tab, yard)
        met = _pages(tab, yard, arguments.loads)
        met &= _drawing(tab, yard, arguments.loads)
    say(f"\n{arguments.models * VERSIONS} versions; load {os.getloadavg()[0]:.1f}")
    return int(not met)


def _keep_session(tab: Page, yard: Yard) -> None:
    name, _, value = yard.cookie.partition("=")
    tab.context.add_cookies([{"name": name, "value": value, "url": f"http://{yard.admin}"}])


def _pages(tab: Page, yard: Yard, loads: int) -> bool:
    columns = "charts | ms, median | fastest | slowest | control process, CPU-ms"
    say(f"\n| page, {loads} loads | {columns} |")
    say("|---|---:|---:|---:|---:|---:|")
    paths = ("/", "/models", f"/models/{ROUTED}", f"/models/{ROUTED}/versions/1", "/servers")
    met = True
    for path in (*paths, f"/routes/{ROUTED}", f"/rollouts/{yard.rollout}"):
        took_ms, cpu_ms = [], []
        for _ in range(loads + 1):
            before = cpu_ns([yard.control])[yard.control]
            tab.goto(f"http://{yard.admin}{path}", wait_until="load")
            cpu_ms.append((cpu_ns([yard.control])[yard.control] - before) / 1e6)
            took_ms.append(tab.evaluate(LOADED))
        del took_ms[0], cpu_ms[0]  # which filled caches, the browser's and the server's
        charts = tab.locator(".chart canvas").count()
        met &= statistics.median(took_ms) <= MOST_LOAD_MS
        say(f"| {path} | {charts} | {_figures(took_ms)} | {statistics.median(cpu_ms):.0f} |")
    return met


def _drawing(tab: Page, yard: Yard, times: int) -> bool:
    took_ms = []
    for _ in range(times):
        tab.goto(f"http://{yard.admin}/models/{ROUTED}", wait_until="load")
        took_ms.append(tab.evaluate(DRAW))
    say(f"\n| one chart | ms, median | fastest | slowest |\n|---|---:|---:|---:|\n"
        f"| 6 lines of 200 points | {_figures(took_ms)} |")  # fmt: skip
    return bool(statistics.median(took_ms) <= MOST_DRAW_MS)


def _figures(took_ms: list[float]) -> str:
    middle = statistics.median(took_ms)
    return f"{middle:.0f} | {min(took_ms):.0f} | {max(took_ms):.0f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.console_charts", description=__doc__
    )
    parser.add_argument("--models", type=int, default=MODELS, help=f"of {VERSIONS} versions each")
    parser.add_argument("--loads", type=int, default=9, help="of each page that count")
    parser.add_argument(
        "--settle", type=float, default=25.0, help="seconds before the hour is made"
    )
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
