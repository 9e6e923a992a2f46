"""The process that checks rules, one after the other."""

from __future__ import annotations

from ...errors import EqfuseError
from ...support.worker_process import serve
from .check import Job, verdict_on
from .verdict import Verdict


def answer(job: Job) -> Verdict | EqfuseError:
    """The verdict on a rule, or what is wrong with its file."""
    try:
        return verdict_on(job)
    except EqfuseError as error:
        return error


if __name__ == "__main__":
    serve(answer)
