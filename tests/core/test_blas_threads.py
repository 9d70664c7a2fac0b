"""Matrix products in one thread."""

import ctypes
from collections.abc import Iterator
from importlib import import_module

import pytest

from headwater.core.blas_threads import single_blas_thread


@pytest.fixture
def blas() -> Iterator[ctypes.CDLL]:
    """NumPy's library, with three threads."""
    library = ctypes.CDLL(import_module("numpy.linalg._umath_linalg").__file__)
    before = library.scipy_openblas_get_num_threads64_()
    library.scipy_openblas_set_num_threads64_(3)
    yield library
    library.scipy_openblas_set_num_threads64_(before)


def test_products_in_the_block_use_one_thread(blas: ctypes.CDLL) -> None:
    with single_blas_thread():
        assert blas.scipy_openblas_get_num_threads64_() == 1
    assert blas.scipy_openblas_get_num_threads64_() == 3


def test_the_last_of_overlapping_blocks_restores_the_number(blas: ctypes.CDLL) -> None:
    first, second = single_blas_thread(), single_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas.scipy_openblas_get_num_threads64_() == 1
    second.__exit__(None, None, None)
    assert blas.scipy_openblas_get_num_threads64_() == 3


def test_an_error_in_the_block_restores_the_number(blas: ctypes.CDLL) -> None:
    with pytest.raises(ValueError, match="failed"), single_blas_thread():
        raise ValueError("failed")
    assert blas.scipy_openblas_get_num_threads64_() == 3
