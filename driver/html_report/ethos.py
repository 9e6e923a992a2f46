"""The report of a bundle for an Ethos-U: cycles by layer and SRAM over time, as Vela estimated them.

``vela.json -> Estimates -> page``
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec

from ...lowering.base.errors import BundleError
from ...lowering.ethos_u.back_end import REPORT, section_of
from ...lowering.plan.manifest import Manifest
from ...support import units
from ...support.text import escape_html
from .markup import Cell, card, element, section, status_line, table, whole_page
from .plots import Span, lane, scale

_KINDS = ("arithmetic", "SRAM", "memory outside")
"""What a layer waits for, each with a colour."""


@dataclass(frozen=True)
class Layer:
    """What Vela says of one operator: cycles in all, those of arithmetic and those of each memory, multiplications, and
    the bytes of SRAM in use while it runs."""

    name: str
    operator: str
    cycles: int
    npu_cycles: int
    macs: int
    sram: int
    memory_cycles: Mapping[str, int]

    @property
    def kind(self) -> int:
        """What takes longest, a place in `_KINDS`."""
        if self.npu_cycles >= self.cycles or not self.memory_cycles:
            return 0
        longest = max(self.memory_cycles, key=self.memory_cycles.__getitem__)
        return 1 if longest.lower().startswith(("sram", "shram", "lutram")) else 2

    @property
    def tip(self) -> str:
        """The layer in a few lines."""
        memories = [f"{name}: {cycles:,} cycles" for name, cycles in self.memory_cycles.items() if cycles]
        return "\n".join((
            self.name, self.operator, f"{self.cycles:,} cycles", f"arithmetic: {self.npu_cycles:,} cycles", *memories,
            f"SRAM in use: {units.memory(self.sram)}",
        ))  # fmt: skip


def layers_of(table_of_vela: Mapping[str, Any]) -> tuple[Layer, ...]:
    """The layers in Vela's table, in the order in which they run. Raises KeyError or ValueError for another table."""
    header: Sequence[str] = table_of_vela["header"]
    memories = {name.removesuffix("_ac"): place for place, name in enumerate(header) if name.endswith("_ac")}
    rows = (dict(zip(header, row, strict=True)) | {"row": row} for row in table_of_vela["data"])
    return tuple(
        Layer(
            row["name"], row["operator"], int(row["op_cycles"]), int(row["npu_cycles"]), int(row["mac_count"]),
            int(row["staging_usage"]), {name: int(row["row"][place]) for name, place in memories.items()},
        )
        for row in rows
    )  # fmt: skip


def ethos_page(bundle: Path, date: str, manifest: Manifest) -> str:
    """The whole page. Raises BundleError if Vela's report in the bundle is damaged."""
    path = bundle / REPORT
    try:
        content = msgspec.json.decode(path.read_bytes())
        layers = layers_of(content["layers"])
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise BundleError(f"{path}: cannot be read ({error}); compile the model again") from None
    title = str(bundle).encode(errors="replace").decode()
    main = _over_time(layers) + _table(layers)
    return whole_page(title, element("header", _header(title, date, manifest)) + element("main", main), {})


def _header(title: str, date: str, manifest: Manifest) -> str:
    part, origin = section_of(manifest.ethos_u, title), manifest.provenance
    lines = [
        f"{date} \u00b7 compiled from {origin.model}",
        f"{part.device} \u00b7 {part.system} \u00b7 {part.memory_mode}",
        f"estimated by Vela {part.vela}; nothing was run",
        f"chosen of {part.candidates} programs: {part.chosen.choice}",
        " \u00b7 ".join(map(str, (*manifest.inputs, *manifest.outputs))),
    ]
    processor = part.processor
    others = f"{len(processor.operators)} on the processor" if processor is not None else "none elsewhere"
    cards = (
        card("cycles, estimated", f"{part.chosen.cycles:,}", f"{part.plain.cycles:,} by Vela's defaults"),
        card("SRAM, estimated", units.memory(part.chosen.sram), f"{units.memory(part.plain.sram)} by Vela's defaults"),
        card("operators on the NPU", str(part.chosen.npu_operators), escape_html(others)),
    )
    return (
        element("h1", escape_html(title))
        + "".join(element("div", escape_html(line), class_="soft") for line in lines)
        + status_line(origin.verification)
        + element("div", "".join(cards), class_="cards", style="--columns:3")
    )


def _over_time(layers: Sequence[Layer]) -> str:
    whole = sum(layer.cycles for layer in layers) or 1
    ends = accumulate((layer.cycles for layer in layers), initial=0)
    spans = [
        Span(*borders, f"c{layer.kind}", layer.tip, number)
        for number, (borders, layer) in enumerate(zip(pairwise(ends), layers, strict=True))
    ]
    most = units.memory(max((layer.sram for layer in layers), default=0))
    legend = "".join(element("span", f'<i class="swatch c{n}"></i>waits for {kind}') for n, kind in enumerate(_KINDS))
    return section(
        "A run over time",
        "Each layer at its place in time, by its cycles as Vela estimates them; the wider, the longer. Point at one.",
        lane("layers", spans, whole),
        lane(f"SRAM in use, up to {most}", spans, whole, [layer.sram for layer in layers]),
        scale(whole, lambda cycles: f"{cycles:,.0f} cycles"),
        element("div", legend, class_="legend"),
    )


def _table(layers: Sequence[Layer]) -> str:
    longest = max((layer.cycles for layer in layers), default=0) or 1
    whole = sum(layer.cycles for layer in layers) or 1
    memories = [*dict.fromkeys(name for layer in layers for name in layer.memory_cycles)]
    columns = ("layer", "operator", "cycles", "share", "arithmetic", *memories, "MACs", "MACs a cycle", "SRAM")
    order = sorted(range(len(layers)), key=lambda number: -layers[number].cycles)

    def cells(layer: Layer) -> Iterator[Cell]:
        yield Cell(layer.name, is_text=True)
        yield Cell(layer.operator, is_text=True)
        yield Cell(f"{layer.cycles:,}", layer.cycles)
        yield Cell(f"{layer.cycles / whole:.1%}", layer.cycles, layer.cycles / longest)
        yield Cell(f"{layer.npu_cycles:,}", layer.npu_cycles)
        for name in memories:
            cycles = layer.memory_cycles.get(name, 0)
            yield Cell(f"{cycles:,}" if cycles else "", cycles)
        rate = layer.macs / layer.cycles if layer.cycles else 0.0
        yield Cell(units.figure(layer.macs, "") if layer.macs else "", layer.macs)
        yield Cell(f"{rate:.1f}" if layer.macs else "", rate)
        yield Cell(units.memory(layer.sram), layer.sram)

    note = "Arithmetic and each memory work side by side; a layer takes about as long as the longest of them."
    rows = [[*cells(layers[number])] for number in order]
    return section("Layers", note, table(columns, rows, [{"data_group": str(number)} for number in order]))
