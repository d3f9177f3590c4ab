"""What holds for every test: an example that Hypothesis makes may take long on a busy machine, the
garbage collector does not go through what importing ten thousand tests has left, and OpenMP's
threads sleep while they wait.
"""

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("modelyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("modelyard")

# libgomp reads it when it is loaded. Beside other tests each wait of a thread used up a core: the
# kernels' tests took 16.8 CPU-seconds, and take 4.7.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

pytest_plugins = ["support.longest_first", "support.clean_checkout"]


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
