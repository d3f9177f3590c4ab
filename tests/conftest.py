"""What holds for every test: an example that Hypothesis makes may take long on a busy machine, and
the garbage collector does not go through what importing ten thousand tests has left.
"""

import gc
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("modelyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("modelyard")

pytest_plugins = ["support.longest_first"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freeze what there is afterwards, which stays to the end: each full collection took 0.5 s, and
    a test that makes many objects has a dozen."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
