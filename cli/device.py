"""``eqfuse device list``, ``show``, ``detect`` and ``measure``."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from ..costmodels.device import DIRECTORY, HOST, Device, device_names, host_device, load_device
from ..costmodels.device_file import DeviceError, device_path
from ..support import units
from ..support.errors import UsageError
from . import render
from .progress import Progress
from .terminal import write


def list_devices(arguments: argparse.Namespace) -> int:
    """Every device by its name, this machine among them."""
    devices = [load_device(name) for name in device_names()]
    if arguments.json:
        render.print_json([_record(device) for device in devices])
    elif not arguments.quiet:
        columns = ("device", "cores", "vectors", "registers", "clock", "peak per core", "caches", "digest")
        render.table("devices", columns, [_row(device) for device in devices], left=1)
    return 0


def _row(device: Device) -> tuple[str, ...]:
    caches = ", ".join(units.figure(cache.size, "B") for cache in device.caches)
    return (
        device.name, str(device.cores), f"{device.vector_bits} bit", str(device.vector_registers),
        f"{device.clock / 1e9:.3g} GHz", f"{device.peak_flops / 1e9:.4g} GFLOP/s", caches, device.digest,
    )  # fmt: skip


def _record(device: Device) -> dict[str, object]:
    return {**asdict(device), "digest": device.digest}


def show_device(arguments: argparse.Namespace) -> int:
    """The file of a device. This machine has none, so one is made for it."""
    try:
        device = load_device(arguments.device)
    except DeviceError as error:
        raise UsageError(f"device {arguments.device}: {error}") from error
    if arguments.json:
        render.print_json(_record(device))
    elif not arguments.quiet:
        write(_text(arguments.device), end="")
    return 0


def _text(name: str) -> str:
    from ..costmodels.host import host_figures

    if name == HOST:
        return host_figures(DIRECTORY).text()
    return device_path(Path(name), DIRECTORY).read_text(encoding="utf-8")


def detect_device(arguments: argparse.Namespace) -> int:
    """A complete device file of this machine, for the user to start a file of their own from."""
    return show_device(argparse.Namespace(**{**vars(arguments), "device": HOST}))


def measure_device(arguments: argparse.Namespace) -> int:
    """Measure this machine, keep that, and show the device that it makes."""
    from ..costmodels.host import forget_measurements, keep_measurements
    from ..costmodels.measure import measure_host

    if arguments.forget:
        forget_measurements()
    else:
        with Progress(arguments) as progress:
            measured = measure_host(load_device(HOST), lambda line: progress("measure", line))
        path = keep_measurements(measured)
        if not (arguments.quiet or arguments.json):
            write(f"# kept in {path}")
    host_device.cache_clear()
    return detect_device(arguments)
