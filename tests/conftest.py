"""What every test shares."""

from hypothesis import settings

# Found examples are the same on every run, so a failure in CI is a failure here.
# `pytest --hypothesis-profile=explore` looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1_000)
settings.load_profile("steady")
