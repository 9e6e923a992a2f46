"""How to tune. Light to import."""

from __future__ import annotations

from dataclasses import field
from math import ceil
from typing import Literal

from ...support.errors import UsageError
from ...support.options import NotNegativeInteger, Positive, PositiveInteger, about, check_options, option, option_class

FIRST_SHARE = 0.5
"""The part of all trials that may be the first ones of their kernels, which only time the analytic schedule."""


def trials_for(kernels: int) -> int:
    """How many trials it takes to reach all of `kernels` kernels."""
    return ceil(kernels / FIRST_SHARE)


RunnerName = Literal["local", "emulate", "rpc"]


@option_class()
class Settings:
    """How to tune a model. `intensive` and `reformer` off are AGO's variants NI and NR (section VI-B).

    Raises UsageError for what does not fit together.
    """

    trials: PositiveInteger = field(
        metadata=about("measure up to this number of candidates, including those of earlier runs")
    )
    time_limit: Positive | None = option(
        None, "start no new candidates after this many seconds", metavar="SECONDS", flags=("--tuning-limit",)
    )
    intensive: bool = option(True, "search for kernels with several convolutions and matrix products")
    reformer: bool = option(
        True, "tune the parts of joined kernels first", off="tune joined kernels from the start, as a whole"
    )
    runner: RunnerName | None = option(
        None,
        "where candidates run: here, on an emulated Arm board, or on devices of `tracker` (default: by target)",
    )
    tracker: str | None = option(None, "TVM's RPC tracker, which knows the devices", metavar="HOST:PORT")
    device_key: str | None = option(None, "the kind of device to ask the tracker for", metavar="K")
    cluster: str | None = option(None, "a Dask scheduler, whose workers compile candidates", metavar="HOST:PORT")
    seed: NotNegativeInteger = option(0, "seed of the search")

    def __post_init__(self) -> None:
        check_options(self)
        if (self.tracker is None) != (self.device_key is None):
            raise UsageError("--tracker and --device-key: devices are found by both; give both")
        if self.tracker is not None and self.runner not in (None, "rpc"):
            raise UsageError(f"--runner {self.runner}: runs no kernels on the devices of --tracker; leave one out")
        if self.runner == "rpc" and self.tracker is None:
            raise UsageError("--runner rpc: say where the devices are by --tracker HOST:PORT and --device-key KEY")

    def runner_for(self, *, is_library: bool) -> RunnerName:
        """The runner that was chosen, or the one that a target has: this machine, or the emulated board.

        Raises UsageError if the chosen one cannot run code for the target.
        """
        own: RunnerName = "local" if is_library else "emulate"
        if self.runner not in (None, "rpc", own):
            meant = "this machine" if is_library else "a board"
            raise UsageError(f"--runner {self.runner}: does not run kernels for {meant}; use --runner {own}, or rpc")
        return "rpc" if self.tracker is not None else own
