"""The features file with which the values of all features are restored."""

from __future__ import annotations

from chaos import next_features, second_group  # noqa: F401 - the first declares its feature
from chaos.features import store

second_group.declare(store)
