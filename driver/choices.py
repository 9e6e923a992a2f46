"""What users choose from by name, gathered from the stages. Light to import, so that ``--help`` answers at once."""

from __future__ import annotations

from typing import get_args

from ..engine.choices import CostName, Extraction, PartitionMethod
from ..lowering.tuning.settings import RunnerName
from ..rules.places import DIRECTORY
from ..rules.vocabulary import PROPERTIES, SOUNDNESS, Precision

COSTS: tuple[str, ...] = get_args(CostName)
EXTRACTIONS: tuple[str, ...] = get_args(Extraction)
PARTITIONS: tuple[str, ...] = get_args(PartitionMethod)
PRECISIONS: tuple[str, ...] = get_args(Precision)
RUNNERS: tuple[str, ...] = get_args(RunnerName)
RULE_PROPERTIES, RULE_SOUNDNESS = PROPERTIES, SOUNDNESS

DEFAULT_DEVICE = "x86-64-v4"
"""The default of `costmodels.device`, which is slow to import."""
FLOATS = ("float16", "float32", "float64")
DSA_VARIANTS = ("tvm", "astitch", "gb", "lb", "instances", "graphturbo", "full")
DSA_ORDERS = ("better", "bfs", "dfs", "footprint", "best")
"""Names of `lowering/dsa`, which is not imported here."""


def rule_topics() -> list[str]:
    """The names of the shipped rule files, which are topics; reading the files takes longer than `--help` may."""
    return sorted({file.stem for file in DIRECTORY.glob("*.egg")} - {"conditions"})
