"""What users choose from by name for accelerators. Light to import, so that ``--help`` answers at once."""

from __future__ import annotations

from typing import Literal

Floats = Literal["float16", "float32", "float64"]
"""The type that a program stores floats in."""
OrderName = Literal["better", "bfs", "dfs", "footprint", "best"]
"""How instances are ordered: see lowering/dsa/schedule/scheduler.py."""
UpSampling = Literal["detect", "everywhere", "nowhere"]
"""Where rule (i) of grouping is turned around: see lowering/dsa/schedule/grouping.py."""
VariantName = Literal["tvm", "astitch", "gb", "lb", "instances", "graphturbo", "full"]
"""How much of the scheduling is done: see lowering/dsa/schedule/variants.py."""
