"""The prefix of a C project: what its files, functions and macros begin with, so that one program can hold several."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...support.errors import UsageError

DEFAULT_PREFIX = "eqfuse"
EXAMPLE = "eqfuse_example"
"""The program of a project that runs its model on files."""
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
_SERVICES = (
    "__TVMBackendParallelLaunch", "__TVMBackendAllocWorkspace", "__TVMBackendFreeWorkspace",
    "TVMFFIErrorSetRaisedFromCStrParts",
)  # fmt: skip
"""The symbols that TVM's objects call, or hold empty pointers of."""
_KERNEL = "__tvm_ffi_"


def check_prefix(prefix: str) -> None:
    """Raise UsageError for a prefix that no C identifier can have."""
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"--prefix {prefix}: must be up to 32 letters, digits and underscores, first a letter")


def add_prefix(text: str, prefix: str) -> str:
    """C, or the name of a file, with another prefix than the default one."""
    if prefix == DEFAULT_PREFIX:
        return text
    text = re.sub(r"\beqfuse(?=_)", prefix, re.sub(r"\bEQFUSE(?=_)", prefix.upper(), text))
    for service in _SERVICES:
        text = re.sub(rf"\b{service}\b", f"{prefix}_{service.strip('_')}", text)
    return re.sub(rf"\b{_KERNEL}", f"{prefix}_kernel_", text)


def renamed_symbols(kernels: Iterable[str], prefix: str) -> dict[str, str]:
    """The symbols of kernels' objects, and what they are called behind a prefix."""
    symbols = (*_SERVICES, *(f"{_KERNEL}{kernel}" for kernel in kernels))
    return {symbol: add_prefix(symbol, prefix) for symbol in symbols}
