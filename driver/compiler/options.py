"""The options of `compile`. Light to import, as those of `optimize` are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...engine.choices import PartitionMethod
from ...lowering.base.choices import Floats, OrderName, UpSampling, VariantName
from ...lowering.base.target import check_target, is_accelerator, is_ethos, is_library
from ...lowering.tuning.settings import Settings
from ...support.errors import UsageError
from ...support.options import (
    Converted,
    Counts,
    NotNegativeInteger,
    Positive,
    PositiveInteger,
    option,
    option_class,
)
from ..options import SEARCH_SECONDS, CheckedOptions, Options

__all__ = ["AcceleratorOptions", "CompileOptions", "Settings"]

Format = Literal["bundle", "c"]
"""A folder that Python loads, or sources and objects that a C compiler makes a library of."""


@option_class(kw_only=True)
class AcceleratorOptions(CheckedOptions):
    """The options of a compilation for an accelerator."""

    batch: PositiveInteger | None = option(None, "all samples of a run (default: the model's)")
    batch_axis: NotNegativeInteger | None = option(
        None, "the axis of all inputs along which samples lie (default: the outermost)", metavar="N",
    )  # fmt: skip
    floats: Floats | None = option(
        None, "the type that floats are stored in (default: the model's); in a narrower type than the model's, outputs "
        "may differ by four times the effect of rounding its weights and inputs",
    )  # fmt: skip
    variant: VariantName = option("full", "full, graphturbo, or one of the steps towards it")
    order: OrderName | None = option(None, "how to order instances (default: as the variant does)")
    up_sampling: UpSampling = option(
        "detect", "where a stage need not be split as finely as the larger one that follows: where the network samples "
        "up, everywhere, or nowhere",
    )  # fmt: skip
    per_cluster: PositiveInteger | None = option(
        None, "samples in one run of a cluster, which shares none with others (default: the fastest way)"
    )


@option_class(kw_only=True)
class CompileOptions(Options):
    """The options of `compile`: those of `optimize`, and how to make a bundle. The device is the target's."""

    target: str = option(
        "host", "host: this machine; the name or path of a device file; dsa-NAME or dsa-FILE.toml: a simulated "
        "accelerator; ethos-NAME: an NPU of Arm's; an unknown name lists all", metavar="NAME|FILE.toml",
    )  # fmt: skip
    threads: PositiveInteger | None = option(None, "threads to run on (default: the cores of the target)")
    measure: bool = option(
        True, "time the kernels, and compile slow ones in another way if that is faster",
        off="do not time the kernels: slow ones stay, and equal models give equal bundles",
    )  # fmt: skip
    batch: Counts = option(
        (), "sizes of the batch that get kernels of their own, beside kernels for all sizes; choices are made for the "
        "first; a model for one sample then takes several; for an accelerator one number: all samples (default: the "
        "model's)", metavar="1,4,16", in_commas=True,
    )  # fmt: skip
    format: Format | None = option(
        None, "a folder that Python loads, or a C project (default: a bundle if this machine can load it)"
    )
    prefix: str | None = option(None, "the beginning of all names in a C project (default eqfuse)", metavar="P")
    partition: PartitionMethod = option(
        "joint", "partition the model into fused kernels; joint: choose graph and kernels together; a model that "
        "records its partition keeps it, except with none",
    )  # fmt: skip
    time_limit: Positive | None = option(
        None,
        f"seconds for rewriting and choosing the graph (default {SEARCH_SECONDS:.0f}), and at most as many again for "
        "verification, unless `verify_limit` gives it its own; building kernels has no limit",
        metavar="SECONDS",
    )
    accelerator: Converted[AcceleratorOptions | Mapping[str, Any] | None, AcceleratorOptions | None] = option(
        None, "for a target dsa-NAME: a mapping with `batch`, `batch_axis`, `floats`, `variant`, `order`, "
        "`up_sampling` and `per_cluster`",
    )  # fmt: skip
    tuning: Converted[Settings | Mapping[str, Any] | None, Settings | None] = option(
        None, "search for schedules: a mapping with at least `trials`, or lowering.tuning.settings.Settings"
    )


def is_for_accelerator(target: str) -> bool:
    """Whether the target is an accelerator. Raises UsageError if there is no target of this name."""
    check_target(target)
    return is_accelerator(target)


def require_processor(target: str) -> None:
    """Raise UsageError for a target that has no schedules to tune."""
    if is_accelerator(target) or is_ethos(target):
        raise UsageError(f"--target {target}: only schedules of processors are tuned; use `eqfuse compile`")


def check_search(target: str, settings: Settings) -> None:
    """Raise UsageError, before any work, for a runner that cannot run the target's code."""
    settings.runner_for(is_library=is_library(target))
