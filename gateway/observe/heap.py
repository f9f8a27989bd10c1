"""Returns memory to the system after a peak.

glibc raises the size from which blocks get a mapping of their own with every large block that is freed, up to 32 MB, and keeps smaller
freed blocks in up to eight heaps for each core. After a few uploads hundreds of megabytes were held for good.
"""

import ctypes
import gc
import os
from functools import lru_cache
from pathlib import Path

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8  # M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h
_OWN_MAPPING_BYTES = 262_144
_HEAPS = 2
_USUAL_THRESHOLD = 700
"""Python's own."""


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL | None:
    """Returns the C library; None where it is not glibc, which alone has the problem and the functions."""
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None


def tune() -> None:
    """Gives large blocks a mapping of their own, which is returned when they are freed. Has to be called before threads start."""
    if (libc := _libc()) is not None:
        libc.mallopt(_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
        libc.mallopt(_ARENA_MAX, _HEAPS)


def resident_bytes() -> int:
    """Returns the bytes of memory that this process holds; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def settle() -> None:
    """Frees what was only needed for loading, and exempts the rest from garbage collection, whose walk through it would make everybody wait
    for 0.1 s now and then. Called once, when all is loaded.
    """
    gc.set_threshold(_USUAL_THRESHOLD)
    gc.collect()
    gc.freeze()  # before `trim`, whose own collection then has nothing to walk through
    trim()


def trim() -> None:
    """Frees what is in reference cycles and returns free memory to the system. Takes 2 ms, since `settle` leaves little to look at.

    A request that ends with an error leaves such cycles: its traceback keeps the frames, and the frames the pieces of its body.
    """
    gc.collect()
    if (libc := _libc()) is not None:
        libc.malloc_trim(0)
