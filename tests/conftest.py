"""What holds for every test: an example that Hypothesis makes may take long on a busy machine."""

from hypothesis import settings

settings.register_profile("modelyard", deadline=None)
settings.load_profile("modelyard")
