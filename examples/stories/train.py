"""Trains the story teller, to stand beside the other examples: `python -m examples.stories.train`.

It is not part of `./dev serve`'s own build, because it takes minutes.
"""

import argparse
import sys
import time
from pathlib import Path

from examples.build import Example, build_one

STORIES = Example("stories", (1,))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.stories.train", description=__doc__)
    parser.add_argument("--into", type=Path, default=Path("models"), help="the model repository")
    into = parser.parse_args().into
    # Lines as they come, also into a pipe or a file.
    sys.stdout.reconfigure(line_buffering=True)
    if build_one(STORIES, into):
        print(f"{into / STORIES.name} is there, after {time.process_time():.0f} CPU seconds")
    else:
        print(f"{into / STORIES.name} is up to date")


if __name__ == "__main__":
    main()
