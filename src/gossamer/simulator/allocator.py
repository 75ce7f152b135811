"""Let the C library keep the memory that training frees, and give back what is free before processes fork.

A step allocates and frees tensors of megabytes. By default glibc maps each anew and gives it back, and the kernel
clears every page again. Kept memory makes a step of a small convolutional network 1.1 to 1.4 times as fast.

Reading data, on the other hand, leaves free pages between those in use; every forked process would get its own copy of
each that it writes to.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# Parameters of mallopt(3), and values for them.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEEP = 1 << 30
_GROW_BY = 64 << 20


def tune_malloc() -> bool:
    """For this process, from now on; False where there is no such setting."""
    mallopt = of_glibc("mallopt")
    if mallopt is None:
        return False
    settings = ((_M_MMAP_THRESHOLD, _KEEP), (_M_TRIM_THRESHOLD, _KEEP), (_M_TOP_PAD, _GROW_BY))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)


def trim_heap() -> None:
    """Give back all that is free now; does nothing where there is no such call."""
    trim = of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def free_bytes() -> int | None:
    """Memory that this process can have now; None where the system does not say."""
    found = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(OSError, ValueError):  # a container's limit; "max" is none
        group = Path("/sys/fs/cgroup")
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    if not found and {"SC_AVPHYS_PAGES", "SC_PAGE_SIZE"} <= os.sysconf_names.keys():
        found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(0, min(found)) if found else None


def of_glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library of Linux."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):  # not glibc
        return None
    return found
