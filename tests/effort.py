"""How often tests repeat what is found only by chance."""

from hypothesis import settings

STEADY_EXAMPLES = 50


def scaled(times: int) -> int:
    """Return how often to repeat: fewer times in `make test`, more with the profile ``explore``."""
    return max(1, times * settings().max_examples // STEADY_EXAMPLES)
