"""Runs as they go on, in a browser on this machine: a list of all runs, and the report of some, which follows them.

The page is the report's own. The server reads the files that runs write anyway, so a run knows nothing of it, and
sends a new version over server-sent events whenever they have grown. It answers on the loopback address only, and
changes nothing. Python's own HTTP server does: three pages, read by one person, are no work for a framework, and
nothing has to be installed.
"""

from gossamer.runs.watch.server import WatchServer

__all__ = ["WatchServer"]
