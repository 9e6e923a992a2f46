"""The process that checks rules, one after the other."""

from __future__ import annotations

from ...errors import EqfuseError
from ...support.worker_process import serve
from .check import Job, verdict_on
from .verdict import Verdict


def answer(job: Job) -> Verdict | EqfuseError:
    """The verdict on a rule, or what is wrong with its file.

    A rule that makes what no code expects is none that may be used, whatever that ends in.
    """
    try:
        return verdict_on(job)
    except EqfuseError as error:
        return error
    except Exception as error:
        reason = " ".join(f"it makes what cannot be computed ({type(error).__name__}: {error})".split())
        return Verdict(job.rule.name, "idle", reason=reason, example=False)


if __name__ == "__main__":
    serve(answer)
