"""A run, or several side by side, as one HTML page that needs nothing else: no font, no picture, no network.

The page is a table of results, charts (SVG, drawn here from plain numbers) and the settings. Curves of one label are
seeds of one experiment: their mean is the line, their range the band. Whatever comes from a run's files is escaped;
what is not a finite number is a gap in a line and a dash in the table. Hiding and fading labels is CSS; a small script
shows values under the pointer, and keeps a live page up to date. Without it every number is in the tables.
"""

from gossamer.runs.report.curve import Curve
from gossamer.runs.report.page import content, document, html, policy, write
from gossamer.runs.report.text import size

__all__ = ["Curve", "content", "document", "html", "policy", "size", "write"]
