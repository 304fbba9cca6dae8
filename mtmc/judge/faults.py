"""From an exception to the Verdict on it: who is to blame, and what is the one line worth reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mtmc.errors import MtmcError
from mtmc.judge import candidate
from mtmc.verdict import CompileError, Infra, RuntimeFault, Verdict

# Class of an exception anywhere in the chain → cause of the RuntimeFault; the first that fits, in this order.
CAUSES = {
    "OutOfBounds": "out_of_bounds",
    "Race": "race",
    "SystemExit": "died",
    "KeyboardInterrupt": "died",
    "DeviceAssert": "assert",
    "AssertionError": "refused",
}
# What CUDA says → cause. These errors leave the process without a usable GPU.
CUDA_CAUSES = {
    "device-side assert": "assert",
    "illegal memory access": "out_of_bounds",
    "misaligned address": "out_of_bounds",
}
# Triton's own refusals of a kernel, by class name so that this module needs no triton.
COMPILER_ERRORS = ("CompilationError", "PTXASError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct")


def classify(error: BaseException, stage: str, runs_candidate: bool = True) -> Verdict:
    """The Verdict on what a job raised. What did not pass through the candidate's code is the machine's fault.

    Except CUDA errors in a job that runs a candidate: they are raised by whichever call happens to wait next.
    """
    if isinstance(error, MtmcError) or not (by_candidate(error) or runs_candidate and _of_cuda(error)):
        return Infra(essence(error))
    chain = list(_chain(error))
    names = {base.__name__ for link in chain for base in type(link).__mro__}
    if isinstance(error, SyntaxError):
        return CompileError(f"line {error.lineno}: {error.msg}", "syntax")
    for link in chain:
        if type(link).__name__ == "OutOfResources":
            return CompileError(
                essence(link), "shared_memory" if getattr(link, "name", "") == "shared memory" else "compile"
            )
    if stage == "compile" and "SystemExit" not in names or names & set(COMPILER_ERRORS):
        return CompileError(essence(error))
    found = [cause for name, cause in CAUSES.items() if name in names]
    found += [cause for words, cause in CUDA_CAUSES.items() if words in str(error)]
    return RuntimeFault(essence(error), found[0] if found else "raised")


def by_compiler(message: str) -> bool:
    """Whether a CompileError's message is Triton's own refusal of a kernel."""
    return message.startswith(COMPILER_ERRORS)


def by_candidate(error: BaseException) -> bool:
    """Whether the exception came out of a call into the candidate (any function of `candidate` in the traceback)."""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == candidate.__file__ and code.co_name in candidate.BLAMED:
            return True
        trace = trace.tb_next
    return False


def poisoned(error: BaseException) -> bool:
    """Whether the process is spoilt: a CUDA error, no host memory, or something that asked it to end."""
    if isinstance(error, (MemoryError, SystemExit, KeyboardInterrupt)):
        return True
    return _of_cuda(error)


def _of_cuda(error: BaseException) -> bool:
    words = ("CUDA error", "Triton Error [CUDA]")
    return any(type(link).__name__ == "AcceleratorError" or any(w in str(link) for w in words) for link in _chain(error))


def essence(error: BaseException) -> str:
    """`Type: message` in one line: Triton's message without the source excerpt, else the innermost cause's first line."""
    *_, inner = _chain(error)
    message = getattr(inner, "error_message", None) or str(inner)
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    where = f" ({Path(inner.filename).name})" if isinstance(inner, OSError) and inner.filename else ""
    return f"{type(inner).__name__}: {lines[0] if lines else 'no message'}{where}"[:300]


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__
