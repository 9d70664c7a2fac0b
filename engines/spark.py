"""The Spark of a process of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext

SPARK_OPTIONS = {"spark.ui.enabled": "false"}


@contextmanager
def spark_context() -> Iterator[None]:
    """End the context that the block starts, and its JVM, which would end with this process."""
    yield
    SparkContext.getOrCreate().stop()
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - there is no public way
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
