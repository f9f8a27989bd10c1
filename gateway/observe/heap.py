"""The allocator of this process: what a peak took is given back to the system.

glibc raises the size from which blocks are mapped on their own with every large block that is freed, up to 32 MB, and keeps what it got
for smaller ones in up to eight heaps for each core. After a few uploads hundreds of megabytes were held for good.
"""

import ctypes
from functools import lru_cache

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
_OWN_MAPPING_BYTES = 262_144
_HEAPS = 2


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL | None:
    """None where the C library is another one, which has neither the trouble nor the functions."""
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None


def tune() -> None:
    """Large blocks have a mapping of their own, which goes with them. Called once, before there are threads."""
    if (libc := _libc()) is not None:
        libc.mallopt(_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
        libc.mallopt(_ARENA_MAX, _HEAPS)


def trim() -> None:
    """Give back what is free now. Takes milliseconds, without Python's lock."""
    if (libc := _libc()) is not None:
        libc.malloc_trim(0)
