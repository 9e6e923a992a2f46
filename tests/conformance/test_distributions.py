"""The wheel and the archive of sources of a release: built from what git keeps, installed where nothing else is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from zipfile import ZipFile

import onnx
import pytest
from onnx import TensorProto, helper

from .pythons import LIMIT, PROJECT, PYTHONS, ROOT, interpreter, uv

KEPT = ("README.md", "CHANGELOG.md", "LICENSE", "docs/optimize.md", "docs/examples.py", "rules/README.md", "setup.py")
"""Files that the archive of sources has, beside the package."""
LEFT_OUT = ("tests/", "benchmarks/", ".ci/", ".venv/")


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """The output of a command that ends well."""
    environment = {**os.environ, **variables}
    said = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=folder, timeout=LIMIT, env=environment
    )
    assert said.returncode == 0, said.stdout[-5000:] + said.stderr[-5000:]
    return said.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both, built and checked by the tools of the extra `release`."""
    folder = tmp_path_factory.mktemp("release")
    sources = folder / "sources"
    sources.mkdir()
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone of the repository")
    kept = subprocess.run(["git", "ls-files", "-z"], capture_output=True, cwd=ROOT, check=True).stdout
    for name in filter(None, kept.decode().split("\0")):
        if (ROOT / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).write_bytes((ROOT / name).read_bytes())
    tools = folder / "tools"
    assert uv("venv", "--quiet", "--python", interpreter(PYTHONS[0]), tools).returncode == 0
    python = tools / "bin" / "python"
    installed = uv("pip", "install", "--quiet", "--python", python, *PROJECT["optional-dependencies"]["release"], "pip")
    assert installed.returncode == 0, installed.stderr
    run(python, "-m", "build", "--outdir", folder / "dist", ".", folder=sources)
    run(python, "-m", "twine", "check", "--strict", *sorted((folder / "dist").iterdir()), folder=folder)
    return folder / "dist"


def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


@pytest.mark.conformance
def test_the_wheel_has_the_package_alone(distributions: Path) -> None:
    with ZipFile(wheel(distributions)) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"eqfuse"}
    assert {"eqfuse/api.py", "eqfuse/py.typed", "eqfuse/rules/arithmetic.egg"} <= set(names)
    assert not any(name.startswith(("eqfuse/tests/", "eqfuse/benchmarks/", "eqfuse/setup.py")) for name in names)


@pytest.mark.conformance
def test_the_archive_has_documents_and_no_tests(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert set(KEPT) <= set(names)
    assert [name for name in names if name.startswith(LEFT_OUT)] == []


@pytest.mark.conformance
def test_the_description_links_to_addresses_alone(distributions: Path) -> None:
    with ZipFile(wheel(distributions)) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        description = archive.read(name).decode().partition("\n\n")[2]
    targets = re.findall(r"\]\(([^)]+)\)", description)
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


@pytest.mark.conformance
@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("kind", ["wheel", "sources"])
def test_both_install_and_optimise(kind: str, version: str, distributions: Path, tmp_path: Path) -> None:
    assert uv("venv", "--quiet", "--python", interpreter(version), tmp_path / "venv").returncode == 0
    python = tmp_path / "venv" / "bin" / "python"
    built = ("--no-binary", "eqfuse") if kind == "sources" else ("--only-binary", "eqfuse")
    where = ("--python", python, "--find-links", distributions, *built)
    installed = uv("pip", "install", "--quiet", *where, f"eqfuse=={run_version()}", folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    check_that_it_optimizes(python, tmp_path)


@pytest.mark.conformance
def test_the_small_installation_optimizes(distributions: Path, tmp_path: Path) -> None:
    """The packages that docs/installation.md names for `optimize` alone, without those that they depend on."""
    page = (ROOT / "docs/installation.md").read_text(encoding="utf-8")
    named = re.search(r"pip install --no-deps ((?:[^\n]*\\\n)*[^\n]*)\n", page)
    assert named is not None
    packages = named[1].replace("\\\n", " ").replace("'", "").split()
    assert uv("venv", "--quiet", "--python", interpreter(PYTHONS[0]), tmp_path / "venv").returncode == 0
    python = tmp_path / "venv" / "bin" / "python"
    where = ("--python", python, "--no-deps", "--find-links", distributions)
    installed = uv("pip", "install", "--quiet", *where, *packages, folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    assert list((tmp_path / "venv").rglob("site-packages/tvm")) == []
    check_that_it_optimizes(python, tmp_path)


def check_that_it_optimizes(python: Path, folder: Path) -> None:
    """Run `eqfuse optimize` in the environment of this Python on two negations that cancel out."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    nodes.append(helper.make_node("Relu", ["b"], ["y"]))
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:]), ir_version=8), folder / "m.onnx")
    program = python.parent / "eqfuse"
    caches = {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": ""}
    said = run(program, "optimize", "m.onnx", "-o", "o.onnx", "--json", folder=folder, **caches)
    assert json.loads(said)["after"]["nodes"] == 1


def run_version() -> str:
    """The version of this tree."""
    lines = (ROOT / "support" / "version.py").read_text(encoding="utf-8").splitlines()
    (version,) = (line.split('"')[1] for line in lines if line.startswith("__version__"))
    return version
