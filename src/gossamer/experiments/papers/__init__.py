"""The tables and figures of three papers, by name: `gossamer reproduce NAME` carries one out.

Each is a function from a size to labelled experiments: "paper" is the paper's own protocol, as far as that is possible,
"small" takes 5 to 40 minutes on two cores for all its rows and three seeds. Beside each row are the paper's figures.
"""

from gossamer.experiments.papers import jwins, low_precision, sparse_push
from gossamer.experiments.papers.table import Finding, Row, Size, Table, Verdict

TABLES: dict[str, Table] = {**jwins.TABLES, **sparse_push.TABLES, **low_precision.TABLES}

__all__ = ["TABLES", "Finding", "Row", "Size", "Table", "Verdict"]
