"""The README's picture of a rollout: `./dev screens --rollout [FILE]`.

A version that fails one request in ten is pushed while clients are sending, and is rolled back; the
console's page of that rollout is taken and made small.
"""

import json
import re
import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from examples.ab_rollout.crowd import sending
from support.browser import chromium, log_in, page
from support.console_seed import PASSWORD
from support.server import ROOT
from support.yard import Yard, yard

MODEL = "shop"
SIZE = (1280, 900)
LARGEST_BYTES = 200_000
GOOD, BAD = {"delay_ms": 15, "fails_every": 0}, {"delay_ms": 15, "fails_every": 20}
PLAN = {
    "mirror": "0",
    "steps": "25, 50",
    "hold": "12s",
    "min_sample": "100",
    "latency_windows": "20",
}
_EXAMPLE = ROOT / "examples" / "ab_rollout"


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "rollout.png")
    with (
        tempfile.TemporaryDirectory() as folder,
        yard(Path(folder)) as running,
        chromium() as browser,
        page(browser, SIZE) as tab,
    ):
        running.api("POST", "/users", {"name": "iris", "role": "admin", "password": PASSWORD})
        url = f"http://127.0.0.1:{running.admin_port}"
        log_in(tab, url, "iris", PASSWORD)
        _roll_back(running, tab, url)
        picture = Image.open(BytesIO(tab.screenshot()))
    colours = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    colours.save(target, optimize=True)
    assert target.stat().st_size < LARGEST_BYTES, target.stat().st_size
    sys.stdout.write(f"{target}: {target.stat().st_size} bytes\n")


def _roll_back(running: Yard, tab: Page, url: str) -> None:
    """Push a version that fails and watch its page until it is rolled back."""
    work = running.repository("shop", formats=["python", "config"])
    _push(running, work, 1, GOOD, "The shop's first model")
    running.wait_versions(MODEL, 1)
    running.cli("route", "set", MODEL, "--arm", f"stable={MODEL}:1=100", "--unit", "header:x-user")
    with sending(f"127.0.0.1:{running.server.grpc_port}", MODEL):
        _push(running, work, 2, BAD, "Rank by price")
        running.wait_for(lambda: bool(_newest(running)), "the rollout")
        tab.goto(f"{url}/rollouts/{_newest(running)['id']}")
        tab.get_by_text("rolled back:").first.wait_for(timeout=180_000)
        tab.wait_for_timeout(3_000)  # until the charts have the last window


def _newest(running: Yard) -> dict[str, str]:
    found = running.api("GET", f"/rollouts?name={MODEL}")[1]["items"]
    return dict(found[0]) if found else {}


def _push(running: Yard, work: Path, number: int, terms: dict[str, int], message: str) -> None:
    home = work / "models" / MODEL
    version = home / str(number)
    version.mkdir(parents=True)
    config = (_EXAMPLE / "config.pbtxt").read_text()
    for key, value in PLAN.items():
        config = re.sub(
            rf'("rollout.{key}" value {{ string_value: )"[^"]*"', rf'\1"{value}"', config
        )
    (home / "config.pbtxt").write_text(config)
    shutil.copy(_EXAMPLE / "model.py", version)
    (version / "terms.json").write_text(json.dumps(terms))
    running.commit(work, message)
    running.push(work)


if __name__ == "__main__":
    main()
