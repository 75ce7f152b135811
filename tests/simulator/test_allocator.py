"""Memory that is given back."""

import mmap
import subprocess
import sys

import pytest

from gossamer.simulator.allocator import unchanged_pages

LIBRARY = b"""7f00-7f10 r--p 00000000 00:01 7 /usr/lib/a b\xe9.so
Rss:  4 kB
Anonymous:  0 kB
Swap:  0 kB
Private_Hugetlb:  0 kB
VmFlags: rd mr
7f10-7f20 rw-p 00010000 00:01 7 /usr/lib/a b\xe9.so
Anonymous:  0 kB
7f20-7f30 r-xp 00000000 00:00 0
Anonymous:  0 kB
7f30-7f40 r--s 00000000 00:01 8 /data
Anonymous:  0 kB
7f40-7f50 r-xp 00000000 00:00 0 [vdso]
Anonymous:  0 kB
"""


@pytest.mark.parametrize("field", [b"Anonymous", b"Swap", b"Private_Hugetlb"])
def test_only_pages_that_are_as_in_their_file_are_given_back(field):
    assert list(unchanged_pages(LIBRARY)) == [(0x7F00, 0x7F10)]
    assert not list(unchanged_pages(LIBRARY.replace(field + b":  0", field + b":  12", 1)))
    assert not list(unchanged_pages(LIBRARY.replace(b"Anonymous", b"Other", 1)))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux")
def test_pages_of_libraries_are_given_back_and_found_again(tmp_path):
    (tmp_path / "jos\udce9").write_bytes(bytes(mmap.PAGESIZE))
    script = """
import mmap, sys, threading, torch
from gossamer.simulator.allocator import trim_heap, give_back_libraries
file = open(sys.argv[1] + "/jos\\udce9", "rb")  # a name that is not UTF-8, as any mapped file may have
data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
def resident():
    return int(open("/proc/self/statm").read().split()[2])  # pages mapped from files, or shared
x = torch.randn(64, 64)
before, product = resident(), x @ x
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
give_back_libraries()
assert resident() > 0.9 * before, "beside another thread"
stop.set()
thread.join()
give_back_libraries()
assert resident() < before / 2
trim_heap()
assert torch.equal(x @ x, product)
"""
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
