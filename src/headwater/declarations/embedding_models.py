"""The models of providers that are known, and the sizes of the vectors that each offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_OPENAI = {
    "text-embedding-3-small": range(1536, 0, -1),
    "text-embedding-3-large": range(3072, 0, -1),
    "text-embedding-ada-002": (1536,),
}
_VOYAGE = (1024, 256, 512, 2048)

MODELS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "local": {"all-MiniLM-L6-v2": (384,)},
    "openai": _OPENAI,
    "azure": _OPENAI,
    "cohere": {
        "embed-v4.0": (1536, 256, 512, 1024),
        "embed-english-v3.0": (1024,),
        "embed-multilingual-v3.0": (1024,),
        "embed-english-light-v3.0": (384,),
        "embed-multilingual-light-v3.0": (384,),
    },
    "voyage": {
        "voyage-4": _VOYAGE,
        "voyage-4-large": _VOYAGE,
        "voyage-4-lite": _VOYAGE,
        "voyage-3.5": _VOYAGE,
        "voyage-3.5-lite": _VOYAGE,
        "voyage-3-large": _VOYAGE,
        "voyage-code-3": _VOYAGE,
        "voyage-finance-2": (1024,),
        "voyage-law-2": (1024,),
    },
}
"""By provider and model: the dimensions that it offers, its usual ones first."""


def dimensions_problem(provider: str, model: str, dimensions: int) -> str | None:
    """Return why a model cannot have these dimensions; None if it can, or is not known."""
    offered = MODELS.get(provider, {}).get(model)
    if offered is None or dimensions in offered:
        return None
    if isinstance(offered, range):
        choice = f"at most {offered[0]}"
    else:
        choice = " or ".join(map(str, sorted(offered)))
    return f"{provider}/{model} has {choice} dimensions, not {dimensions}"
