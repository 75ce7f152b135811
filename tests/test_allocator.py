"""Memory that is given back."""

import sys
from pathlib import Path

import pytest
import torch

from gossamer.engines.allocator import give_back_freed_memory, give_back_libraries

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux")


def resident_of_files() -> int:
    """Pages of this process that are mapped from files, or shared."""
    return int(Path("/proc/self/statm").read_text().split()[2])


def test_pages_of_libraries_are_given_back_and_found_again():
    x = torch.randn(64, 64)
    before, product = resident_of_files(), x @ x
    give_back_libraries()
    assert resident_of_files() < before / 2
    give_back_freed_memory()
    assert torch.equal(x @ x, product)
