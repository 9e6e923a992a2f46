"""What a search needs, put together from its settings: builder, runner, database and a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ...support.scratch import scratch_folder
from ..target import Target
from .records import RecordDatabase
from .runners.builders import Builder, ClusterBuilder, PoolBuilder
from .runners.measuring import Runner
from .settings import Settings
from .trials import Laboratory


@contextmanager
def laboratory(target: Target, settings: Settings, processes: int) -> Iterator[Laboratory]:
    """A laboratory whose processes and sessions end with the context. Raises EqfuseError where a part is missing."""
    with (
        scratch_folder("tuning") as scratch,
        closing(_runner(target, settings, Path(scratch))) as runner,
        closing(_builder(settings, processes)) as builder,
    ):
        yield Laboratory(target, builder, runner, RecordDatabase.open(), Path(scratch))


def check(target: Target, settings: Settings) -> None:
    """Raise EqfuseError where a part is missing that a search will need, or nothing can be written to its database."""
    with laboratory(target, settings, processes=1) as found:
        found.database.check()


def _builder(settings: Settings, processes: int) -> Builder:
    return PoolBuilder(processes) if settings.cluster is None else ClusterBuilder(settings.cluster)


def _runner(target: Target, settings: Settings, folder: Path) -> Runner:
    kind = settings.runner_for(is_library=target.is_library)
    if kind == "emulate":
        from .runners.emulated_runner import EmulatedRunner

        return EmulatedRunner(target, folder)
    if kind == "rpc":
        from .runners.rpc_runner import RpcRunner

        assert settings.tracker is not None
        assert settings.device_key is not None
        return RpcRunner(settings.tracker, settings.device_key, target.triple, target.threads)
    from .runners.local_runner import LocalRunner

    return LocalRunner(target.threads)
