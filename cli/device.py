"""``eqfuse device list``, ``show``, ``detect`` and ``measure``."""

from __future__ import annotations

import argparse

from ..driver.devices import HOST, describe, device_text, find_device, forget_host, known_devices, measure_host
from ..support import units
from . import render
from .progress import Progress
from .terminal import write


def list_devices(arguments: argparse.Namespace) -> int:
    """Every device by its name, this machine among them."""
    devices = known_devices()
    if arguments.json:
        render.print_json({"devices": [describe(device) for device in devices]})
    elif not arguments.quiet:
        columns = ("device", "cores", "vectors", "registers", "clock", "peak per core", "caches", "digest")
        rows: list[tuple[str, ...]] = [
            (
                device.name, str(device.cores), f"{device.vector_bits} bit", str(device.vector_registers),
                f"{device.clock / 1e9:.3g} GHz", f"{device.peak_flops / 1e9:.4g} GFLOP/s",
                ", ".join(units.memory(cache.size) for cache in device.caches), device.digest,
            )
            for device in devices
        ]  # fmt: skip
        render.table("devices", columns, rows, left=1)
    return 0


def show_device(arguments: argparse.Namespace) -> int:
    """The file of a device. This machine has none, so one is made for it."""
    device = find_device(arguments.device)
    if arguments.json:
        render.print_json(describe(device))
    elif not arguments.quiet:
        write(device_text(arguments.device), end="")
    return 0


def detect_device(arguments: argparse.Namespace) -> int:
    """A complete device file of this machine, from which the user can start one of their own."""
    return show_device(argparse.Namespace(**{**vars(arguments), "device": HOST}))


def measure_device(arguments: argparse.Namespace) -> int:
    """Measure this machine, keep the figures, and show the device with them."""
    if arguments.forget:
        forget_host()
    else:
        with Progress(arguments) as progress:
            path = measure_host(lambda line: progress("measure", line))
        if not (arguments.quiet or arguments.json):
            write(f"# kept in {path}")
    return detect_device(arguments)
