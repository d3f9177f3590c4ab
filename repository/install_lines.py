"""The command that installs what an extra of ours has, in the environment of the server.

It names packages and never `modelyard[...]`: an index may have something else of that name.
"""

import shlex
import sys
from pathlib import Path

CPU_TORCH = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of builds without CUDA: a tenth of the size of PyPI's build for Linux."""

_DISTRIBUTION = "modelyard"
_DRIVER = Path("/proc/driver/nvidia/version")


def install_line(extra: str) -> str:
    """The command for an extra, or its name where this installation has no metadata."""
    requirements = requirements_of(extra)
    if not requirements:
        return f"the extra '{extra}' of modelyard"
    words = ["pip", "install", *requirements]
    if any(name_of(one) == "torch" for one in requirements) and _takes_cpu_build():
        words += ["--extra-index-url", CPU_TORCH]
    return shlex.join(words)


def line_for_module(module: str) -> str:
    """The command for the first extra that brings the package of this import name; "" if none."""
    name = module.partition(".")[0]
    for extra in ("cpu", "torch", "llm"):
        if any(name_of(one) == name for one in requirements_of(extra)):
            return install_line(extra)
    return ""


def requirements_of(extra: str) -> list[str]:
    """What the installed distribution names for an extra; other extras of ours written out."""
    from importlib import metadata  # 20 ms, only for who needs a line

    found: list[str] = []
    try:
        requires = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return found
    for line in requires:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        if marker not in (f'extra == "{extra}"', f"extra == '{extra}'"):
            continue
        if name_of(requirement) == _DISTRIBUTION:
            inner = requirement.partition("[")[2].partition("]")[0]
            found += [one for name in inner.split(",") for one in requirements_of(name.strip())]
        else:
            found.append(requirement)
    return list(dict.fromkeys(found))


def name_of(requirement: str) -> str:
    """The package's name in a requirement."""
    end = next((i for i, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), None)
    return requirement[:end]


def _takes_cpu_build() -> bool:
    return sys.platform == "linux" and not _DRIVER.exists()
