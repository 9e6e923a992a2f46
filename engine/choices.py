"""Names that users choose from: the command line and the options of the API offer the same. Light to import."""

from __future__ import annotations

from typing import Literal

CostName = Literal["roofline", "flops", "profile"]
"""The costs that the choice of a graph may minimise."""
Extraction = Literal["exact", "greedy"]
"""The methods by which the graph is chosen from the e-graph."""
PartitionMethod = Literal["joint", "ago", "dnnfusion", "fuseops", "none"]
"""The methods of partition into sub-graphs: see extract/partition/search/methods.py."""
MAX_FUSE_DEPTH = 256
"""The most operators that FuseOps puts into one group by default, as in TVM."""
