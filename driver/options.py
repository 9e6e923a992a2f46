"""The options of the API and of the command line. Each is stated once, as the field of a frozen dataclass: signatures,
flags, checks and help are made from it (support/options.py). Light to import, so that ``--help`` answers at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Literal

from ..costmodels.choices import ACCELERATOR, DEFAULT_DEVICE, DEFAULT_RUNTIME
from ..engine.choices import MAX_FUSE_DEPTH, CostName, Extraction, PartitionMethod
from ..lowering.base.choices import VariantName
from ..rules.places import rule_paths
from ..rules.vocabulary import PROPERTIES, SOUNDNESS, Precision, RuleSelection
from ..support.options import (
    File,
    Files,
    Names,
    NotNegative,
    NotNegativeInteger,
    OptionError,
    Positive,
    PositiveInteger,
    check_options,
    option,
    option_class,
    part_of,
)
from .choices import rule_topics
from .sizes import Sizes

SEARCH_SECONDS = 30.0
"""Seconds of the search (saturation, extraction, partition) unless the user gives a time limit."""
VERIFICATION_SECONDS = 300.0
"""Seconds of verification unless the user gives a limit for it or for everything."""
MEASURE_SECONDS = 60.0
"""The budget of --measure without a number: enough for some ten candidates of a model that takes 20 ms."""

Shapes = Mapping[str, tuple[int | str, ...]]
"""New shapes of inputs, by name."""
Rival = Literal["ort", "vela", VariantName]
"""What a bundle is measured beside: ONNX Runtime, Vela on the model as exported, or another variant of a program for an
accelerator."""


@option_class(kw_only=True, init=False, repr=False, eq=False)
class CheckedOptions:
    """Options whose fields are checked when they are made. Raises OptionError for a value that is invalid.

    Classes without a constructor are bases of others; making all the methods of a dataclass takes time.
    """

    def __post_init__(self) -> None:
        check_options(self)


@option_class(kw_only=True)
class CostOptions(CheckedOptions):
    """What to minimise and for which device: the options of `diff`."""

    cost: CostName = option(
        "roofline", "the cost to minimise; profile: measured times, and scaled roofline times for all others"
    )
    device: str = option(
        "", "the device that costs are predicted for: a name from `eqfuse device list` or a device file (default "
        f"{DEFAULT_DEVICE} on every machine, so that results are the same; with `cost` profile: host, this machine)",
        metavar="NAME|FILE.toml",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.device:
            from ..costmodels.device import default_device  # slow to import, like all imports in functions here

            object.__setattr__(self, "device", default_device(self.cost))


@option_class(kw_only=True, init=False, repr=False, eq=False)
class ShapeOptions(CheckedOptions):
    """The shapes of inputs."""

    input_shapes: Shapes = option(
        {}, "fix the shape of an input (also NAME:[1,3,224,224] and NAME:1x3x224x224)", metavar="NAME:1,3,224,224",
    )  # fmt: skip


@option_class(kw_only=True, init=False, repr=False, eq=False)
class DimensionOptions(ShapeOptions):
    """Facts of the user about the dynamic dimensions of inputs."""

    dim: Names = option(
        (), "a fact about a dynamic dimension: it is a multiple of 32, at least 1, or 4; the result need not work for "
        "other sizes", metavar="H=32k|N>=1|N=4",
    )  # fmt: skip


@option_class(kw_only=True, init=False, repr=False, eq=False)
class InputOptions(CheckedOptions):
    """Inputs of the user's own."""

    inputs: Files = option(
        (), "run on these inputs (default: random ones): an array for each input by its name; or a folder of such "
        "files, of NAME.npy, or of input_0.pb as in ONNX's test data", metavar="FILE.npz|FOLDER",
    )  # fmt: skip


@option_class(kw_only=True, init=False, repr=False, eq=False)
class ComparisonOptions(InputOptions):
    """How outputs are compared, on which inputs, and how long that may take."""

    atol: NotNegative | None = option(None, "absolute tolerance (default: by element type)", metavar="X")
    rtol: NotNegative | None = option(None, "relative tolerance (default: by element type)", metavar="X")
    verify_limit: Positive | None = option(
        None,
        f"seconds that verification may take (default {VERIFICATION_SECONDS:.0f}, or the rest of `time_limit`); "
        "a result that is not verified by then is not written", metavar="SECONDS",
    )  # fmt: skip
    seed: NotNegativeInteger = option(0, "seed of inputs and of a search")
    custom_ops: Files = option((), "a library of custom operators for ONNX Runtime, which runs them", metavar="LIB.so")


@option_class(kw_only=True, init=False, repr=False, eq=False)
class FuseOpsOptions(CheckedOptions):
    """The options of TVM's FuseOps, which are for `partition` fuseops alone."""

    fuse_opt_level: NotNegativeInteger = option(
        1, "level of `partition` fuseops: 0 fuses nothing, all others are alike", metavar="LEVEL"
    )
    max_fuse_depth: PositiveInteger = option(MAX_FUSE_DEPTH, "most operators of a sub-graph of `partition` fuseops")
    max_function_args: NotNegativeInteger = option(
        0, "most values that a sub-graph of `partition` fuseops reads and makes together; 0: no limit"
    )
    link_params: bool = option(
        False, "constants are parts of the sub-graphs of `partition` fuseops: `max_function_args` does not count them, "
        "and local functions hold them",
    )  # fmt: skip

    def check_method(self, method: PartitionMethod | None) -> None:
        """Raise OptionError if one of them is given with another method."""
        for each in fields(FuseOpsOptions):
            if method != "fuseops" and getattr(self, each.name) != each.default:
                raise OptionError(each.name, "is for partition fuseops, which was not asked for")


@option_class(kw_only=True)
class InspectOptions(CostOptions, DimensionOptions, FuseOpsOptions):
    """The options of `inspect`."""

    partition: PartitionMethod | None = option(
        None, "partition the model into groups to fuse (default: show those it records)"
    )
    certificate: File = option(None, "show the groups that this certificate proves", metavar="FILE.json")
    certify: bool = option(False, "have z3 check the groups: acyclic, each convex")
    time_limit: Positive = option(10.0, "seconds for `partition` joint", metavar="SECONDS")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_method(self.partition)


@option_class(kw_only=True)
class VerifyOptions(ComparisonOptions, ShapeOptions):
    """The options of `verify`."""

    verify_limit: Positive = option(
        VERIFICATION_SECONDS, "seconds that verification may take; without a verdict by then it fails",
        metavar="SECONDS",
    )  # fmt: skip


@option_class(kw_only=True)
class BenchOptions(InputOptions):
    """The options of `bench`."""

    against: Rival | None = option(
        None, "ort: take turns with ONNX Runtime on the original model; vela: compare a program for an Ethos-U with "
        "that of Vela's defaults on the original; other names: schedule a program for an accelerator anew in that "
        "variant, with the same samples in each run of a cluster",
    )  # fmt: skip
    trace: File = option(None, "write the simulated run of a program for an accelerator", metavar="FILE.json")
    model: File = option(None, "where the original is now (default: where it was compiled from)", metavar="FILE.onnx")
    kernels: bool = option(False, "time each kernel inside the running model, beside the roofline of the device")
    throughput: PositiveInteger | None = option(
        None, "let this number of threads call the model at once, and count calls a second", metavar="CLIENTS"
    )
    batch: PositiveInteger | None = option(
        None, "samples in a run of a bundle with a dynamic batch (default: the size that it is optimised for)"
    )
    repeat: PositiveInteger | None = option(
        None,
        "runs of each (default 50, with `kernels` 30), or slices of a quarter of a second (with `throughput`: 12)",
    )
    threads: PositiveInteger | None = option(None, "threads to run on (default: as compiled)")
    emulate: bool = option(False, "count the instructions of a bundle for Arm on an emulated board")
    arm64_root: File = option(None, "ONNX Runtime for `emulate` with `against` ort; see docs/arm.md", metavar="FOLDER")


@option_class(kw_only=True)
class RuleOptions(CheckedOptions):
    """Rules of the user's own."""

    rules: Files = option((), "further rules", metavar="FILE|DIR")


@option_class(kw_only=True, init=False, repr=False, eq=False)
class RewritingOptions(CostOptions, DimensionOptions, RuleOptions):
    """How to rewrite and to choose the graph: the options of every command that rewrites."""

    only: Names = option(
        (), f"use only these rules: groups are the topics {', '.join(rule_topics())}, the properties "
        f"{', '.join(PROPERTIES)}, the soundness {', '.join(SOUNDNESS)}, and single rules",
        metavar="GROUP", in_commas=True,
    )  # fmt: skip
    skip: Names = option(
        (), "do without these rules; `eqfuse rules list` shows the rules of each group",
        metavar="GROUP", in_commas=True,
    )  # fmt: skip
    domains: Names = option(
        (), "make operators of a runtime's own domain, too: com.microsoft is ONNX Runtime's",
        metavar="DOMAIN", flags=("--domain", "--domains"), in_commas=True,
    )  # fmt: skip
    precision: Precision = option(
        "real", "exact: bit-identical rules; real: equal over the reals for finite inputs (a NaN or inf in an input "
        "may give another result); fast: overflow inside the model may change, too, and `compile` may leave numbers "
        "unrounded between QuantizeLinear and DequantizeLinear",
    )  # fmt: skip
    typical: Names = option(
        (), "the size of a dynamic dimension that is optimised for; it gets kernels of its own", metavar="H=640",
    )  # fmt: skip
    range: Names = option(
        (), "the sizes that a dynamic dimension takes: from, to and step; results are right for other sizes, too",
        metavar="H=32..1280:32",
    )  # fmt: skip
    outputs: Names = option(
        (), "compute only these values, outputs or values inside the graph, and leave out all that they do not need",
        metavar="NAME", in_commas=True,
    )  # fmt: skip
    opset: PositiveInteger | None = option(None, "use operators up to this opset (default: the model's)")
    node_limit: PositiveInteger = option(50_000, "largest number of e-nodes")
    iterations: PositiveInteger = option(200, "rounds of rewriting")
    extraction: Extraction = option("exact", "how to choose the graph")
    time_limit: Positive | None = option(
        None, f"seconds for rewriting and choosing the graph (default {SEARCH_SECONDS:.0f})", metavar="SECONDS"
    )


@option_class(kw_only=True, init=False, repr=False, eq=False)
class AttemptOptions(ComparisonOptions, RewritingOptions):
    """How to rewrite, and to verify the result: the options of `bisect`."""

    trust_rules: bool = option(
        False, "use the rules of `rules` without the check that refuses wrong ones; the result says so"
    )
    time_limit: Positive | None = option(
        None,
        f"seconds that each attempt may take, verification included (default: {SEARCH_SECONDS:.0f} s of rewriting)",
        metavar="SECONDS",
    )


@option_class(kw_only=True)
class MeasureOptions(CheckedOptions):
    """How `optimize` times candidates for its result."""

    measure: Positive | None = option(
        None,
        "seconds to time candidates in ONNX Runtime; the result is the fastest, never one slower than the original "
        f"(without a number {MEASURE_SECONDS:.0f} s)", metavar="SECONDS", const=MEASURE_SECONDS,
    )  # fmt: skip
    threads: PositiveInteger | None = option(None, "time on this number of threads (default 1)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threads is not None and self.measure is None:
            raise OptionError("threads", "is for measure, which was not asked for")

    def check_beside(self, options: Options) -> None:
        """Raise OptionError if they do not fit other options."""
        if self.measure is not None and options.partition != "none":
            raise OptionError("measure", "times whole graphs, and a partition was asked for; give one of the two")


_JOINS_SAMPLES = "matmul-of-rows"
"""The rule that makes one axis of the samples and rows of a product."""


@option_class(kw_only=True)
class Options(AttemptOptions, FuseOpsOptions):
    """The options of `optimize`. Raises OptionError for a value that is invalid."""

    runtime: str = option(
        DEFAULT_RUNTIME, "the runtime the result is for: onnxruntime, onnxruntime-1.22, onnxruntime-vnni (on "
        "processors with VNNI, whose products of bytes never saturate), none, or a file that lists what it runs as a "
        "single kernel", metavar="NAME|FILE.toml",
    )  # fmt: skip
    time_limit: Positive | None = option(
        None, "end after this many seconds, reading and verification included, with the best graph found by then; "
        f"`verify_limit` gives verification its own (default: {SEARCH_SECONDS:.0f} s for rewriting and choosing the "
        "graph)", metavar="SECONDS",
    )  # fmt: skip
    verify: bool = option(True, "compare result and original", off="do not compare result and original")
    partition: PartitionMethod = option(
        "none", "partition the result into fused sub-graphs; joint: choose graph and sub-graphs together"
    )
    profile_pairs: Positive | None = option(
        None, "seconds to measure the sub-graphs that `partition` dnnfusion compares (its yellow pairs) and that the "
        "profile database does not have, on this machine; with `cost` profile alone", metavar="SECONDS",
    )  # fmt: skip
    as_functions: bool = option(False, "write each sub-graph as a local function")
    certify: bool = option(
        False, "fail unless z3 proves within a minute that the sub-graphs are acyclic (by default it gets a second)"
    )
    certificate: File = option(None, "write a JSON certificate of acyclicity", metavar="FILE.json")
    save_intermediate: File = option(
        None, "write the model after each stage to this folder, before it is verified: 1-read.onnx, 2-infer.onnx, "
        "3-decode.onnx, 4-summarize.onnx", metavar="FOLDER",
    )  # fmt: skip
    intensive: bool = option(
        True, "let a sub-graph, or a kernel, hold several convolutions and matrix products",
        off="put at most one convolution or matrix product into a kernel",
    )  # fmt: skip

    def __post_init__(self) -> None:
        from onnx import defs

        from ..costmodels.runtime import load_runtime

        super().__post_init__()
        load_runtime(self.runtime)
        for name in ("as_functions", "certify", "certificate"):
            if self.partition == "none" and getattr(self, name):
                raise OptionError(name, "is about sub-graphs, and partition is none")
        self.check_method(self.partition)
        if self.profile_pairs is not None and (self.partition, self.cost) != ("dnnfusion", "profile"):
            raise OptionError("profile_pairs", "is for partition dnnfusion with cost profile; ask for both")
        if self.partition == "joint" and self.cost == "flops":
            raise OptionError("partition", "joint minimises time; it cannot be used with cost flops")
        if self.opset is not None and self.opset > (newest := defs.onnx_opset_version()):
            raise OptionError("opset", f"{self.opset} is not known here; the newest is {newest}")
        if self.typical or self.range:
            self.sizes  # noqa: B018  raises OptionError

    @property
    def sizes(self) -> Sizes:
        """The user's facts about the sizes of dynamic dimensions. Raises OptionError for a text of another form."""
        return Sizes.of(self.typical, self.range)

    @property
    def selection(self) -> RuleSelection:
        """Which rules to use. A runtime recognises the integers of a model by pairs of conversions, so that rules leave
        no number unrounded unless kernels are made. Some accelerators divide the samples of a product among instances,
        which they cannot if samples and rows are one axis."""
        selection = part_of(RuleSelection, self)
        if self.precision == "fast" and self.partition == "none":
            selection = replace(selection, skip=(*selection.skip, "step"))
        if self.device.startswith(ACCELERATOR):
            from ..costmodels.dsa_device import load_dsa_device

            if not load_dsa_device(self.device.removeprefix(ACCELERATOR)).joins_samples:
                selection = replace(selection, skip=(*selection.skip, _JOINS_SAMPLES))
        return selection

    @property
    def trusted(self) -> tuple[str, ...]:
        """The rule files that are used without a check, by name."""
        return tuple(path.name for path in rule_paths(self.rules)) if self.trust_rules else ()

    @property
    def search_seconds(self) -> float:
        """The most seconds that the search may take: all of a time limit, from which `optimize` keeps some back."""
        return self.time_limit or SEARCH_SECONDS

    @property
    def verification_seconds(self) -> float:
        """The most seconds that verification may take."""
        return self.verify_limit or self.time_limit or VERIFICATION_SECONDS
