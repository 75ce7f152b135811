"""A group of peers on several machines, in a browser on this one, as it goes on.

Each peer's page of metrics is read every second by a thread of its own, with a limit of time and size, so that none
holds up another. What a page says is hostile until it is checked (`scrape.py`): text is cut and escaped, numbers are
finite or unknown. Curves are kept in memory, of bounded length, as long as the watcher runs. The page has the look of
the report, and its server answers this machine only (`gossamer.runs.watch.loopback`).
"""

from gossamer.peers.watch.server import PeerWatchServer

__all__ = ["PeerWatchServer"]
