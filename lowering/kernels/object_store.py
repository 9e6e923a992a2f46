"""Object files of kernels that were compiled before, for any model: ``Request, task key -> Answer``.

An object is kept under the digest of all that decides about it: what the kernel computes, its name, the target, the
device, the threads, the decisions, the parameters that are parts, and the versions of TVM and of the sources that
schedule it.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from ...support.store import Store, source_digest
from ..bundle.bundle import versions
from .messages import Answer, Request

KEPT = 2000
"""How many objects stay, of some 30 kB each; the ones that were not used for the longest time go."""
_SOURCES = ("lowering/schedules", "lowering/kernels")
"""The packages that make an object of a function."""


@dataclass(frozen=True)
class ObjectStore:
    """Objects in the user's cache folder. One that cannot be read is compiled again."""

    store: Store

    @staticmethod
    def in_cache() -> ObjectStore:
        """The store in ``$XDG_CACHE_HOME/eqfuse/objects``, by default under ``~/.cache``."""
        return ObjectStore(Store.in_cache("objects"))

    def fetch(self, request: Request, task: str) -> Answer | None:
        """Write the object of a request, whose function has the key `task`, and return its answer; None where there is
        none."""
        stored = self.store.read_bytes(_key(request, task))
        if stored is None:
            return None
        answer, content = pickle.loads(stored)
        Path(request.object_file).parent.mkdir(exist_ok=True)
        Path(request.object_file).write_bytes(content)
        kept: Answer = replace(answer, seconds=0.0)
        return kept

    def keep(self, request: Request, task: str, answer: Answer) -> None:
        """Keep an object that was compiled; not one for which another schedule had to be given up."""
        if answer.problem is None and answer.recovered is None:
            content = pickle.dumps((answer, Path(request.object_file).read_bytes()))
            self.store.keep_bytes(_key(request, task), content)

    def trim(self) -> None:
        """Remove the oldest objects beyond those that stay."""
        self.store.trim(KEPT)


def _key(request: Request, task: str) -> str:
    chosen = (
        request.name, request.device, sorted(request.target.items()), request.threads, request.with_rules,
        sorted(request.decisions.items()), sorted(request.without), request.parts, task, _software(),
    )  # fmt: skip
    return sha256(repr(chosen).encode()).hexdigest()


@cache
def _software() -> str:
    return repr(sorted(versions().items())) + source_digest(*_SOURCES)
