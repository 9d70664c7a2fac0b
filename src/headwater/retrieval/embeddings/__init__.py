"""Embeddings: vectors of texts, whose cosine says how similar the texts are."""

from headwater.retrieval.embeddings.embedder import Embedder as Embedder
from headwater.retrieval.embeddings.embedder import TextKind as TextKind
from headwater.retrieval.embeddings.embedders import Embedders as Embedders
