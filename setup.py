"""What of the package's metadata no table of pyproject.toml can say: the description, which is README.md with the
addresses of the files that it links to, for an index of packages shows it outside of the repository."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
FILES = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Files"]
README = (HERE / "README.md").read_text(encoding="utf-8")

setup(
    script_name="setup.py",  # which is no module of the package, although it stands in its folder
    long_description=re.sub(r"\]\((?!https?:|#)([^)]+)\)", rf"]({FILES}/\1)", README),
    long_description_content_type="text/markdown",
)
