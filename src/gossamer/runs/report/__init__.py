"""A run, or several side by side, as one HTML page that needs nothing else: no script, no font, no network.

The page is a table of results, charts (SVG, drawn here from plain numbers) and the settings. Curves of one label are
seeds of one experiment: their mean is the line, their range the band. Whatever comes from a run's files is escaped;
what is not a finite number is a gap in a line and a dash in the table.
"""

from gossamer.runs.report.charts import Curve
from gossamer.runs.report.page import html, write
from gossamer.runs.report.text import size

__all__ = ["Curve", "html", "size", "write"]
