"""What pip says when it fails, in words for a model's owner. Pure."""

import re
from collections.abc import Sequence

_NONE = re.compile(
    r"Could not find a version that satisfies the requirement (.+?) \(from versions: (.*)\)"
)
_CONFLICT = re.compile(r"ERROR: Cannot install (.+) because these package versions have confl")
_UNREACHABLE = (
    *("NewConnectionError", "Max retries exceeded", "Connection refused", "ConnectTimeoutError"),
    *("Temporary failure in name resolution", "Network is unreachable", "service not known"),
    *("ReadTimeoutError", "ProxyError", "SSLError", "CERTIFICATE_VERIFY_FAILED"),
    "Connection aborted",
)
_ADDRESS = re.compile(r"(https?://)(?:[^\s/@'\"]*@)?([^\s/?#'\",;)]+)[^\s'\",;)]*")
_PATH = re.compile(r"(': |with url: )/\S*")
_MOST_VERSIONS = 10
_LAST_LINES = 3


def translated(lines: Sequence[str], platform: str) -> str:
    """Why pip failed, from what it printed; `platform`: "Python 3.11 on linux_x86_64". Of an index'
    address it has the host alone: names, passwords and tokens stand elsewhere in it."""
    lines = [_PATH.sub(r"\1/…", _ADDRESS.sub(r"\1\2/…", line)) for line in lines]
    text = "\n".join(lines)
    unreachable = next((line for line in lines if any(one in line for one in _UNREACHABLE)), "")
    if unreachable:
        return f"the package index cannot be reached ({_shortened(unreachable)})"
    if "THESE PACKAGES DO NOT MATCH THE HASHES" in text:
        return f"a package has another hash than it should: {_hash_lines(lines)}"
    if "No space left on device" in text:
        return "the disk is full"
    if found := _NONE.search(text):
        return _not_found(found[1].partition(" (from ")[0], found[2], platform)
    if found := _CONFLICT.search(text):
        needs = [line.strip() for line in lines if " depends on " in line or "requested" in line]
        return f"the requirements contradict each other: {'; '.join(needs[:6]) or found[1]}"
    if "Hashes are required in --require-hashes mode" in text:
        return "some of the requirements have a --hash and others not; give one to each, or to none"
    errors = [line for line in lines if line.lstrip().startswith("ERROR")] or list(lines)
    return f"pip failed: {_shortened(' '.join(errors[-_LAST_LINES:])) or 'it said nothing'}"


def _not_found(requirement: str, versions: str, platform: str) -> str:
    if versions.strip() in ("", "none"):
        return (
            f"no wheel of '{requirement}' for {platform} was found: the package is not where the "
            "server looks, or comes without one for this Python; packages are not built from source"
        )
    known = versions.split(", ")
    shown = ", ".join(known[-_MOST_VERSIONS:])
    return f"no version fits '{requirement}' for {platform}; there are {shown}"


def _hash_lines(lines: Sequence[str]) -> str:
    told = [line.strip() for line in lines if "Expected sha" in line or "Got  " in line]
    named = [line.strip() for line in lines if line.strip().endswith(":") and "from" in line]
    return _shortened("; ".join([*named[:1], *told[:2]]))


def _shortened(text: str) -> str:
    return " ".join(text.split())[:400]
