"""What a process and all that it started take: memory and time, read from /proc while they run (Linux)."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

Memory = dict[str, int]  # bytes: Pss in all; of it Pss_Anon, Pss_File, Pss_Shmem; unevictable is all but files


class Watched:
    """A command that prints JSON lines, with the most memory its processes took together.

    Proportional set sizes are added up, in which a page that several processes share counts once in all.
    """

    def __init__(self, command: list[str]):
        self._command = command
        self.most: Memory = {"Pss": 0, "Pss_Anon": 0, "Pss_File": 0, "Pss_Shmem": 0, "unevictable": 0}

    def lines(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """Each line with the seconds since the start."""
        start, done = monotonic(), Event()
        with subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            watcher = Thread(target=self._watch, args=(process.pid, done))
            watcher.start()
            try:
                for line in process.stdout:
                    yield monotonic() - start, json.loads(line)
            finally:
                done.set()
                watcher.join()
                process.stdout.close()
        if process.returncode:
            raise RuntimeError(f"{' '.join(self._command)} ended with {process.returncode}")

    def _watch(self, pid: int, done: Event) -> None:
        while not done.wait(0.1):
            tree = list(_tree(pid))
            now = [found for found in map(_memory, tree) if found]
            for name in ("Pss", "Pss_Anon", "Pss_File", "Pss_Shmem"):
                self.most[name] = max(self.most[name], sum(found[name] for found in now))
            unevictable = sum(found["Pss_Anon"] + found["Pss_Shmem"] for found in now)
            self.most["unevictable"] = max(self.most["unevictable"], unevictable)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _tree(child)


def _memory(pid: int) -> Memory | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:  # it has ended
        return None
    return {name: 1024 * int(size.split()[0]) for name, size in (line.split(":") for line in lines)}
