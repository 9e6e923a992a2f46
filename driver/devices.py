"""Devices to look at (those that come with the project, those in files, and this machine, which can be measured), and
the user's measurements of sub-graphs on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..costmodels.device import DIRECTORY, HOST, Device, device_names, host_device, load_device
from ..costmodels.device_file import DeviceError, device_path
from ..costmodels.measuring.measurement import Measurement, record_of
from ..costmodels.measuring.profile import ProfileDatabase
from ..extract.partition.canonical_key import operator_names
from ..support.errors import UsageError

__all__ = ["HOST", "describe", "device_text", "find_device", "forget_host", "known_devices", "measure_host"]


def known_devices() -> list[Device]:
    """Every device by its name, this machine among them."""
    return [load_device(name) for name in device_names()]


def find_device(name: str) -> Device:
    """The device of a name or of a file. Raises UsageError if there is none, or if its file is wrong."""
    try:
        return load_device(name)
    except DeviceError as error:
        raise UsageError(str(error)) from error


def describe(device: Device) -> dict[str, object]:
    """All figures of a device and its digest, as plain data for JSON."""
    return {**asdict(device), "digest": device.digest}


def device_text(name: str) -> str:
    """The file of a device that `find_device` finds. This machine has none, so the text is made for it."""
    from ..costmodels.host import host_figures

    if name == HOST:
        return host_figures(DIRECTORY).text()
    return device_path(Path(name), DIRECTORY).read_text(encoding="utf-8")


def measure_host(observer: Callable[[str], None]) -> Path:
    """Measure this machine, and keep the figures as part of its device. Returns the file that holds them."""
    from ..costmodels.host import keep_measurements
    from ..costmodels.measuring import measure

    path = keep_measurements(measure.measure_host(load_device(HOST), observer))
    host_device.cache_clear()
    return path


def forget_host() -> None:
    """Remove the measured figures of this machine, so that its device is again that of its class."""
    from ..costmodels.host import forget_measurements

    forget_measurements()
    host_device.cache_clear()


@dataclass(frozen=True)
class Measured:
    """A measurement with the types of the operators in its sub-graph."""

    measurement: Measurement
    operators: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return record_of(self.measurement)


def open_database(path: Path | None) -> ProfileDatabase:
    """The database at `path`, or the user's own. Raises UsageError if the folder of `path` does not exist."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"--database {path}: the folder {path.parent} does not exist")
    return ProfileDatabase.open(path)


def list_measured(database: ProfileDatabase, device: str | None) -> list[Measured]:
    """Every measurement, or those of a device."""
    return [Measured(each, operator_names(each.subgraph)) for each in database.all(device=device)]
