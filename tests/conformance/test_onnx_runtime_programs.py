"""ONNX Runtime's own Python examples, and the tests of its Python interface, unchanged but for the import.

They are in Debian's source package, which apt-get fetches where it can; models that the package lacks are made here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from .programs import SECONDS, exchange_import, install

pytestmark = pytest.mark.conformance
EXAMPLES = "docs/python/examples"
TESTS = "onnxruntime/test/python"
LIBRARIES = ("scikit-learn", "skl2onnx", "pandas", "matplotlib")
"""What the examples import besides."""
SEEDED = """
import runpy, sys
import numpy.random
numpy.random.seed(0)
runpy.run_path(sys.argv[1], run_name="__main__")
"""
MEASURED = re.compile(r"Average|_profile_|'(dur|pid|tid|ts)'")
"""Lines of the examples' output with times, or with what changes with each process."""
EAGER = '''\
"""Each call that can be is compiled before it runs, compared with ONNX Runtime, and gives compiled results."""
import tempfile
import threading
from pathlib import Path
from typing import Any

import onnx

import eqfuse
from eqfuse.driver.session import model_code, sizes
from eqfuse.driver.session.verdicts import Verdict, Verdicts

compiled = 0


def compile_now(self, job, lock):
    folder = Path(tempfile.mkdtemp()) / "bundle"
    model = onnx.load_model_from_string(job.model) if isinstance(job.model, bytes) else job.model
    shapes = {name: array.shape for name, array in job.inputs.items()}
    options = {"input_shapes": shapes} if job.typical is None else {"typical": job.typical}
    try:
        eqfuse.compile(model, folder, threads=job.threads, measure=False, **options)
    except eqfuse.EqfuseError as error:
        return Verdict(False, str(error))
    self.keep(job.key, Verdict(True, "compiled"), folder)
    return Verdict(True, "compiled")


def compile_first(self, runtime, names, feeds, *rest):
    global compiled
    if not self._has_begun:
        others = set(threading.enumerate())
        self._begin(runtime, feeds)
        for thread in set(threading.enumerate()) - others:
            thread.join()
    compiled += self._takeover is not None
    return run(self, runtime, names, feeds, *rest)


def give_compiled_results(self, runtime, names, feeds, is_timed=True):
    try_both(self, runtime, names, feeds, False)
    results = self._model.run(feeds)
    return [results[name] for name in names]


run, try_both = sizes.SizeGroup.run, sizes.Takeover._try
Verdicts._compile, sizes.SizeGroup.run, sizes.Takeover._try = compile_now, compile_first, give_compiled_results
model_code.SHARE = 0


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"compiled calls: {compiled}")
'''


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs and tests of the newest source package that Debian's stable release has."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "lists/partial").mkdir(parents=True)
    apt = ["apt-get", "-q", "-o", "Dir::Etc::sourceparts=-", "-o", f"Dir::Etc::sourcelist={folder / 'sources.list'}"]
    apt += ["-o", f"Dir::State::lists={folder / 'lists'}", "-o", "APT::Sandbox::User=root"]
    try:
        targets = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)"], capture_output=True, text=True, check=True
        )
        mirrors = [line.split()[1] for line in targets.stdout.splitlines() if line.startswith("Debian ")]
        if not mirrors:
            pytest.skip("apt-get knows no mirror of Debian")
        (folder / "sources.list").write_text(f"deb-src {mirrors[0]} stable main\n")
        for command in (["update"], ["source", "--download-only", "--tar-only", "onnxruntime"]):
            subprocess.run([*apt, *command], cwd=folder, capture_output=True, check=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"the source package of onnxruntime cannot be had: {error}")
    (archive,) = folder.glob("onnxruntime_*.orig.tar.*")
    with tarfile.open(archive) as content:
        for member in content:
            root, _, path = member.name.partition("/")
            if path.startswith((EXAMPLES, TESTS)):
                content.extract(member, folder, filter="data")
    return folder / root


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    install(LIBRARIES, folder)
    return folder


def run_program(command: Sequence[str], folder: Path, libraries: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*filter(None, sys.path), str(libraries)])  # ours come first
    environment = {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "agg", "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
    )


@pytest.mark.parametrize(
    "name",
    ["backend", "common_errors", "convert_pipeline_vectorizer", "load_and_predict", "metadata", "profiling",
     "train_convert_predict"],
)  # fmt: skip
def test_examples(name: str, sources: Path, libraries: Path, tmp_path: Path) -> None:
    """All that use a session. What they print is the same, but for times."""
    text = (sources / EXAMPLES / f"plot_{name}.py").read_text(encoding="utf-8")
    assert exchange_import(text) != text
    outputs = []
    for module, program in (("onnxruntime", text), ("eqfuse", exchange_import(text))):
        folder = tmp_path / module
        folder.mkdir()
        (folder / "example.py").write_text(program, encoding="utf-8")
        result = run_program(["-c", SEEDED, "example.py"], folder, libraries)
        assert result.returncode == 0, result.stderr[-2000:]
        outputs.append([line for line in result.stdout.splitlines() if not MEASURED.search(line)])
    assert outputs[0] == outputs[1]
    assert outputs[0]


def test_the_tests_of_its_interface(sources: Path, tmp_path: Path) -> None:
    """They pass with compiled results where they pass with ONNX Runtime's; some need files that are not there."""
    passed = []
    for module in ("onnxruntime", "eqfuse"):
        folder = tmp_path / module
        shutil.copytree(sources / TESTS, folder)
        write_models(folder / "testdata")
        tests = folder / "onnxruntime_test_python.py"
        if module == "eqfuse":
            (folder / "conftest.py").write_text(EAGER)
            tests.write_text(exchange_import(tests.read_text(encoding="utf-8")), encoding="utf-8")
        command = ["-m", "pytest", "-rA", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", tests.name]
        result = run_program(command, folder, folder)
        passed.append({line.split()[1] for line in result.stdout.splitlines() if line.startswith("PASSED")})
    assert len(passed[0]) > 40, result.stdout[-2000:]
    assert passed[0] <= passed[1]
    compiled = re.search(r"compiled calls: (\d+)", result.stdout)
    assert compiled is not None
    assert int(compiled[1]) >= 5


def write_models(folder: Path) -> None:
    """The models that the tests of the interface run, by the names and the interfaces that they expect."""
    folder.mkdir(exist_ok=True)
    for path in (Path(onnxruntime.__file__).parent / "datasets").glob("*.onnx"):
        shutil.copy(path, folder)
    tensor, sequence = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    number, truth, text, integer = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.STRING, TensorProto.INT64
    weights = numpy_helper.from_array(np.array([[1.0], [2.0]], np.float32), "W")
    free = tensor("x", number, ["Dim1", "Dim2", 5])
    for dimension, denotation in zip(free.type.tensor_type.shape.dim, ("DATA_BATCH", "DATA_CHANNEL"), strict=False):
        dimension.denotation = denotation
    integers = [tensor(name, integer, [2, 3]) for name in ("tensor1", "tensor2", "tensor")]
    models: dict[str, tuple[str, list[Any], Any]] = {
        "matmul_1": ("MatMul", [tensor("X", number, [3, 2])], tensor("Y", number, [3, 1])),
        "matmul_2": ("MatMul", [tensor("X", number, ["None", 2])], tensor("Y", number, ["None", 1])),
        "logicaland": (
            "And", [tensor(name, truth, [2, 2]) for name in ("input1:0", "input:0")], tensor("output:0", truth, [2, 2])
        ),
        "identity_string": ("Identity", [tensor("input:0", text, [2, 2])], tensor("output:0", text, [2, 2])),
        "sequence_length": ("SequenceLength", [sequence("X", number, None)], tensor("Y", integer, [])),
        "sequence_construct": ("SequenceConstruct", integers[:2], sequence("output_sequence", integer, None)),
        "sequence_insert": (
            "SequenceInsert", [sequence("input_seq", integer, None), integers[2]],
            sequence("output_sequence", integer, None),
        ),
        "abs_free_dimensions": ("Abs", [free], tensor("y", number, ["Dim1", "Dim2", 5])),
    }  # fmt: skip
    for name, (operator, inputs, output) in models.items():
        constants = [weights] if operator == "MatMul" else []
        names = [each.name for each in (*inputs, *constants)]
        graph = helper.make_graph([helper.make_node(operator, names, [output.name])], "g", inputs, [output], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        save(model, folder / f"{name}.onnx")
