"""Pictures of every screen, light and dark, narrow and wide: `./dev screens [FOLDER]`."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser

from support.browser import chromium, log_in, page
from support.console_seed import BEFORE, PASSWORD, break_a_folder, paths, seed
from support.series_seed import seed_series
from support.yard import yard

SIZES = {"390": (390, 844), "1440": (1440, 900), "1920": (1920, 1080)}


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "screens").resolve()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, yard(Path(folder)) as running:
        break_a_folder(running)
        seeded = seed(running)
        seed_series(running)
        url = f"http://127.0.0.1:{running.admin_port}"
        with chromium() as browser:
            for width, size in SIZES.items():
                for look in ("light", "dark"):
                    _take(browser, url, paths(seeded), target, (width, look), size)
    sys.stdout.write(f"pictures are in {target}\n")


def _take(
    browser: Browser,
    url: str,
    screens: dict[str, str],
    target: Path,
    kind: tuple[str, str],
    size: tuple[int, int],
) -> None:
    with page(browser, size, dark=kind[1] == "dark") as tab:
        for name, path in BEFORE.items():
            tab.goto(url + path)
            tab.screenshot(path=target / f"{name}-{kind[0]}-{kind[1]}.png", full_page=True)
        log_in(tab, url, "iris", PASSWORD)
        for name, path in screens.items():
            tab.goto(url + path)
            tab.screenshot(path=target / f"{name}-{kind[0]}-{kind[1]}.png", full_page=True)


if __name__ == "__main__":
    main()
