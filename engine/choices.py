"""What users choose from by name: the command line and the options of the API offer the same. Light to import."""

from __future__ import annotations

from typing import Literal

CostName = Literal["roofline", "flops", "profile"]
"""What the choice of a graph minimises."""
Extraction = Literal["exact", "greedy"]
"""How the graph is chosen from the e-graph."""
PartitionMethod = Literal["joint", "ago", "dnnfusion", "fuseops", "none"]
"""How a graph is cut into sub-graphs: see extract/partition/search/methods.py."""
MAX_FUSE_DEPTH = 256
"""Operators that FuseOps puts into one group at most, unless it is told otherwise, as in TVM."""
