"""Arguments that several of the benchmarks' commands take."""

import argparse
from collections.abc import Callable, Collection


def names(known: Collection[str]) -> Callable[[str], list[str]]:
    """Read "a,b", refusing what is not known; "" is none of them."""

    def read(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is not one of {', '.join(known)}")
        return found

    return read
