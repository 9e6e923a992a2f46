"""Compile networks for Arm's Ethos-U and print Vela's estimates: its defaults on the model as exported, and ours.

The networks (networks/embedded.py, networks/mobile.py) have random weights and are quantised by ONNX Runtime's tools to
int8, their ranges those of random inputs. Each program is verified as `eqfuse compile` does it: bits by Arm's reference
model on 20 inputs, operators by ONNX Runtime. All figures but seconds are Vela's estimates of its version, in the mode
of the device; with enough time (--time-limit) they are the same in every run.

    python benchmarks/ethos_u.py --work FOLDER                    # three devices, nine networks; finished rows are kept
    python benchmarks/ethos_u.py --work FOLDER --devices ethos-u85-512 --networks ds_cnn resnet8 --time-limit 60
    python benchmarks/ethos_u.py --work FOLDER --print            # the table of the rows that are there
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path

import onnx

from eqfuse.benchmarks.measuring.quantising import quantised
from eqfuse.benchmarks.networks import embedded, mobile
from eqfuse.costmodels.ethos_device import ethos_device, ethos_names
from eqfuse.driver.compiler.compile import compile_model
from eqfuse.driver.compiler.options import CompileOptions
from eqfuse.lowering.ethos_u.back_end import section_of
from eqfuse.support.errors import EqfuseError

NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "mobilenet_v2": mobile.mobilenet_v2,
    "resnet18": embedded.resnet18,
    "resnet8": embedded.resnet8,
    "ds_cnn": embedded.ds_cnn,
    "mobilenet_v1_025": embedded.mobilenet_v1_quarter,
    "autoencoder": embedded.autoencoder,
    "detector": embedded.detector,
    "bert_tiny_encoder": embedded.bert_tiny_encoder,
    "audio_encoder": embedded.audio_encoder,
}
DEVICES = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
FORM = "qdq-s8s8-channel"
_LARGE = 256 * 1024
"""Bytes of SRAM above which less of it is what is wanted of U55."""
_VERIFY_SECONDS = 600.0


@dataclass(frozen=True)
class Row:
    """One network on one device; memory in bytes, `seconds` are those of the compilation."""

    network: str
    device: str
    vela: str = ""
    mode: str = ""
    plain_cycles: int = 0
    cycles: int = 0
    plain_sram: int = 0
    sram: int = 0
    share: float = 0.0
    candidates: int = 0
    seconds: float = 0.0
    choice: str = ""
    verdict: str = ""


def measure(network: str, device: str, work: Path, seconds: float) -> Row:
    """Compile a network for a device; the verdict is the error if there is one."""
    model = work / f"{network}.onnx"
    if not model.exists():
        onnx.save(NETWORKS[network](), model)
    begin = time.monotonic()
    options = CompileOptions(target=device, time_limit=seconds, verify_limit=_VERIFY_SECONDS)
    try:
        made = compile_model(quantised(model, FORM), work / f"{network}-{device}", options)
    except EqfuseError as error:
        return Row(network, device, verdict=f"error: {error}", seconds=time.monotonic() - begin)
    section = section_of(made.manifest.ethos_u, str(made.path))
    chosen, plain = section.chosen, section.plain
    return Row(
        network, device, section.vela, section.memory_mode, plain.cycles, chosen.cycles, plain.sram, chosen.sram,
        chosen.npu_operators / max(1, chosen.npu_operators + chosen.cpu_operators), section.candidates,
        time.monotonic() - begin, chosen.choice, made.manifest.provenance.verification,
    )  # fmt: skip


def geometric_mean(ratios: Sequence[float]) -> float:
    """1 without any."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else 1.0


def print_tables(rows: Sequence[Row]) -> None:
    """A table in Markdown for each device, and the means below it."""
    for device in dict.fromkeys(row.device for row in rows):
        of_device = [row for row in rows if row.device == device]
        done = [row for row in of_device if not row.verdict.startswith("error")]
        if done:
            print(f"\n{device}, estimated by Vela {done[0].vela}, {ethos_device(device).system}, {done[0].mode}\n")
        print("| network | cycles: plain Vela | ours | ratio | SRAM, KB: plain | ours | NPU | bits | tried | seconds |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for row in of_device:
            if row not in done:
                print(f"| {row.network} | {row.verdict} |||||||||")
                continue
            bits = "equal" if "bits equal" in row.verdict else "not verified"
            print(
                f"| {row.network} | {row.plain_cycles:,} | {row.cycles:,} | {row.cycles / row.plain_cycles:.3f} "
                f"| {row.plain_sram / 1024:,.0f} | {row.sram / 1024:,.0f} | {row.share:.0%} | {bits} "
                f"| {row.candidates} | {row.seconds:.0f} |"
            )
        cycles = geometric_mean([row.cycles / row.plain_cycles for row in done])
        print(f"\nGeometric mean of cycles over plain Vela's: {cycles:.3f} of {len(done)} networks.")
        large = [row for row in done if row.plain_sram > _LARGE]
        if large and ethos_device(device).arena is None:
            cycles = geometric_mean([row.cycles / row.plain_cycles for row in large])
            memory = geometric_mean([row.sram / row.plain_sram for row in large])
            print(f"Networks above 256 KB ({len(large)}): {memory:.3f} of the SRAM at {cycles:.3f} of the cycles.")


def main() -> None:
    """Make the rows that are missing, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, metavar="FOLDER", help="for models, bundles and rows")
    parser.add_argument("--devices", nargs="+", default=list(DEVICES), choices=ethos_names())
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--time-limit", type=float, default=40.0, metavar="SECONDS", help="for a row's programs")
    parser.add_argument("--print", action="store_true", help="make no rows")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for device in arguments.devices:
        for network in arguments.networks:
            path = arguments.work / f"{network}-{device}.json"
            if not path.exists() and not arguments.print:
                row = measure(network, device, arguments.work, arguments.time_limit)
                path.write_text(json.dumps(asdict(row), indent=1) + "\n", encoding="utf-8")
            if path.exists():
                rows.append(Row(**json.loads(path.read_text(encoding="utf-8"))))
    print_tables(rows)


if __name__ == "__main__":
    main()
