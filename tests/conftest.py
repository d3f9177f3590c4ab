"""What holds for every test: an example that Hypothesis makes may take long on a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile("modelyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("modelyard")

pytest_plugins = ["support.longest_first"]
