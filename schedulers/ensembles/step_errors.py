"""A step's error as a client of the ensemble reads it: of the same kind, saying where. Pure.

Source of the text: Triton's `ensemble_scheduler.cc`.
"""


def in_ensemble(ensemble: str, error: Exception) -> Exception:
    """The same error, of the same class and with all it says besides its text."""
    made = error.__class__.__new__(error.__class__)
    made.__dict__.update(error.__dict__)
    made.args = (f"in ensemble '{ensemble}', {error}",)
    made.__cause__ = error
    return made
