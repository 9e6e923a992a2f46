"""Requests to a process that compiles kernels, and its answers. Light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...costmodels.device import Device
from ..base.decisions import Decisions, DecisionSite


@dataclass(frozen=True)
class Part:
    """A parameter that is a part of a wider tensor: from `first` on along an axis that has `extent` elements there."""

    parameter: int
    axis: int
    first: int
    extent: int


@dataclass(frozen=True)
class Request:
    """One kernel for `threads` threads. `prim_func` is TVM's JSON of it, `target` as TVM takes it.

    The parameters `parts` are dense tensors there, and the whole tensors that they are parts of in the object.
    Its schedule takes these `decisions`, as far as its rule has such sites, and is not by the rules `without`. Without
    `with_rules` it gets a plain schedule, which no compiler stumbles over.
    """

    name: str
    prim_func: str
    device: Device
    target: Mapping[str, Any]
    object_file: str
    threads: int = 1
    with_rules: bool = True
    decisions: Decisions = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Choices:
    """Choices for kernels in place of those of the device model, by the keys of their tasks (`task_key`).

    `decisions` of their schedules, and schedule rules that they are `without`. ONNX Runtime runs the kernels all of
    whose operators are in `runtime`; the reason goes into the bundle. The `plain` values are stored in ONNX's order,
    whichever kernels read and write them.
    """

    decisions: Mapping[str, Decisions] = field(default_factory=dict)
    without: Mapping[str, frozenset[str]] = field(default_factory=dict)
    runtime: Mapping[int, str] = field(default_factory=dict)
    plain: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Answer:
    """One kernel compiled, or why it is not: the `problem`.

    `repack` says how its schedule wants its constant inputs, in order; `rule` made the schedule, and took the
    decisions of `trace`. `recovered` is the problem with the schedule before the plain one. `failed` has the rules that
    matched first and whose schedules TVM could not compile, and why. `lost`: the problem says nothing about the kernel.
    """

    name: str
    seconds: float
    repack: tuple[Any, ...] = ()
    rule: str = ""
    problem: str | None = None
    recovered: str | None = None
    trace: tuple[DecisionSite, ...] = ()
    failed: tuple[str, ...] = ()
    lost: bool = False
