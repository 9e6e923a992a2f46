"""The process that verifies: it may crash in a kernel or never end, and its parent ends it then."""

from __future__ import annotations

import traceback

from ...errors import EqfuseError, VerificationError
from ...support.worker_process import serve
from .question import Question
from .report import Verification
from .verdict import verdict


def answer(question: Question) -> Verification | Exception:
    """The verdict, or what kept it from being found; an exception of no kind of ours has its traceback as a note."""
    try:
        return verdict(question)
    except EqfuseError as error:
        return error
    except MemoryError:
        return VerificationError("verification ran out of memory")
    except Exception as error:  # some cannot be pickled
        failure = RuntimeError(f"verification: {type(error).__name__}: {error}")
        failure.add_note(traceback.format_exc())
        return failure


if __name__ == "__main__":
    serve(answer)
