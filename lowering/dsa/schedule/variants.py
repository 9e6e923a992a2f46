"""Ways to run a network on an accelerator: the full one, the steps that lead to it, and its baselines.

Section 5.3 of GraphTurbo (OSDI 2023) turns its parts on one after another: outputs in LLB (GB), outputs in L1 (LB),
sub-graph instances, across-layer instruction scheduling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ...base.choices import OrderName
from ..program.instructions import Level

SpillRule = Literal["longest", "least"]


@dataclass(frozen=True)
class Variant:
    """`instances`: sub-graphs are split and ordered; else layers run one after another, each on the whole batch.

    `fastest` is the best level where outputs of layers may stay, `next` the one for those that do not fit; `overlap`:
    what a layer needs may be moved, and other units may compute, while earlier layers run. `abreast`: instances of one
    sub-graph that follow each other take turns, so that weights are loaded once for all of them; they take more room at
    once. `split_for`: the level that instances have to fit, as section 3.6 suggests; `room`, the part
    of it that they may fill, the rest is left to what other instances made and what cores fetch of each other. `spill`:
    which tensor gives way, the one that lives longest (section 4.3) or those that cost least together.
    """

    name: str
    instances: bool = True
    fastest: Level = Level.LB
    next: Level = Level.GB
    overlap: bool = True
    abreast: bool = False
    spill: SpillRule = "least"
    order: OrderName = "better"
    split_for: Level = Level.LB
    room: float = 1.0
    pipeline: int = 4
    """Into how many tiles a layer may be cut only to let units work at once."""
    inputs: Level = Level.DDR
    """Where tiles read inputs of the network from, if they have room there."""


TVM = Variant("tvm", instances=False, fastest=Level.DDR, next=Level.DDR, overlap=False)
"""Kernels of one layer that exchange their data through DDR."""
ASTITCH = Variant("astitch", instances=False, next=Level.DDR, overlap=False, spill="longest")
"""Tensors stitched in LB as far as they fit, else through DDR; sub-graphs are not split."""
OUTPUTS_IN_GB = Variant("gb", instances=False, fastest=Level.GB, overlap=False, spill="longest")
OUTPUTS_IN_LB = Variant("lb", instances=False, overlap=False, spill="longest")
INSTANCES = Variant("instances", overlap=False, spill="longest")
GRAPHTURBO = Variant("graphturbo", spill="longest")
"""All of the text's parts."""
FULL = Variant("full", inputs=Level.GB)
"""And what goes beyond it: the best of several ways, by estimated and then by simulated time (codegen/compiler.py)."""
ALTERNATIVES = (
    FULL,
    replace(FULL, room=0.7),
    replace(FULL, abreast=True),
    replace(FULL, abreast=True, split_for=Level.GB),
    replace(FULL, abreast=True, split_for=Level.GB, room=0.5),
    replace(FULL, split_for=Level.GB, room=0.65),
)
"""The variants of which FULL takes the fastest. Instances that fill the GB leave nothing of it to what others made: a
third of it kept the maps of MobileNet-v2, 32 samples at a time, out of DDR, and half of it the scores of BERT's
attention to 512 tokens, beside which queries, keys and values of all of them are live."""

VARIANTS = {v.name: v for v in (TVM, ASTITCH, OUTPUTS_IN_GB, OUTPUTS_IN_LB, INSTANCES, GRAPHTURBO, FULL)}
