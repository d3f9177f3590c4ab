"""Settings of a server whose models are loaded by request, and the folders it keeps for them."""

from pathlib import Path


def kept(state: Path) -> list[Path]:
    """The folders of overrides on disk, of every server."""
    return sorted(state.glob("overrides/*/*"))


def explicit(root: Path, **settings: object) -> dict[str, object]:
    state = root.parent / f"{root.name}-state"
    return {
        "model_control_mode": "explicit",
        "state_dir": state,
        "allow_code_in_load_requests": True,
        **settings,
    }
