"""How much memory a worker takes, with the processes it has started; Linux."""

from collections.abc import Iterable, Iterator
from pathlib import Path

_KIB = 1024


def own_bytes(pid: int) -> int:
    """Memory that is not of files, of a process and all below it; pages that several of them share
    after a fork count for each. 0 for one that has gone."""
    return own_bytes_of(process_tree(pid))


def own_bytes_of(pids: Iterable[int]) -> int:
    """The same of these processes alone."""
    return sum(_status_bytes(one) for one in pids)


def shared_out_bytes(pid: int) -> int:
    """The same with shared pages by share; costs milliseconds per GiB."""
    return shared_out_bytes_of(process_tree(pid))


def shared_out_bytes_of(pids: Iterable[int]) -> int:
    """The same of these processes alone."""
    return sum(_rollup_bytes(one) for one in pids)


def bytes_beyond(pid: int, limit_bytes: int) -> int:
    """What a process takes where that is more than the limit, else 0; looks closely only where it
    may be."""
    if own_bytes(pid) <= limit_bytes:
        return 0
    taken = shared_out_bytes(pid)
    return taken if taken > limit_bytes else 0


def process_tree(pid: int) -> Iterator[int]:
    """A process and all below it; one that is orphaned meanwhile is not found."""
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        for thread in _names(Path(f"/proc/{one}/task")):
            waiting += map(int, _read(f"/proc/{one}/task/{thread}/children").split())


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError:
        return []


def _status_bytes(pid: int) -> int:
    return _sum(_read(f"/proc/{pid}/status"), ("RssAnon:", "RssShmem:"))


def _rollup_bytes(pid: int) -> int:
    return _sum(_read(f"/proc/{pid}/smaps_rollup"), ("Pss_Anon:", "Pss_Shmem:"))


def _sum(text: str, keys: tuple[str, ...]) -> int:
    lines = (line.split() for line in text.splitlines() if line.startswith(keys))
    return sum(int(line[1]) * _KIB for line in lines)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # it has gone
        return ""
