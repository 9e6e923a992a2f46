"""How to tune. Light to import."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from ...support.errors import UsageError
from ...support.options import NotNegativeInteger, Positive, PositiveInteger, check_options

FIRST_SHARE = 0.5
"""The part of all trials that may be the first ones of their kernels, which only time the analytic schedule."""


def trials_for(kernels: int) -> int:
    """How many trials it takes to reach all of `kernels` kernels."""
    return ceil(kernels / FIRST_SHARE)


RunnerName = Literal["local", "emulate", "rpc"]


@dataclass(frozen=True)
class Settings:
    """How to tune a model. The command line's options are these fields.

    `trials`: candidates that are measured in all, those that are in the database already counted; no new ones begin
    after `time_limit` seconds. `intensive` and `reformer` off are AGO's variants NI and NR (section VI-B). `runner`
    says where kernels run: on this machine, on an emulated board, or on devices of the kind `device_key` that the RPC
    `tracker` (``host:port``) knows. `cluster`: a Dask scheduler whose workers compile. Raises UsageError for what does
    not fit together.
    """

    trials: PositiveInteger
    time_limit: Positive | None = None
    intensive: bool = True
    reformer: bool = True
    runner: RunnerName | None = None
    tracker: str | None = None
    device_key: str | None = None
    cluster: str | None = None
    seed: NotNegativeInteger = 0

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

        Raises UsageError where the chosen one cannot run code for the target.
        """
        own: RunnerName = "local" if is_library else "emulate"
        if self.runner not in (None, "rpc", own):
            meant = "this machine" if is_library else "a board"
            raise UsageError(f"--runner {self.runner}: does not run kernels for {meant}; use --runner {own}, or rpc")
        return "rpc" if self.tracker is not None else own
