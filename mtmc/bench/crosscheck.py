"""A second opinion: KernelBench's own `eval_kernel_against_ref` on a program, TF32 off on both sides. Needs its checkout."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtmc.errors import BadInput

Evaluator = Callable[..., Any]

TRIALS = 2  # inputs on which both sides are compared
CLIENTS = {"openai": ["OpenAI"], "litellm": ["completion"], "dotenv": ["load_dotenv"], "requests": []}
"""What the evaluator's package imports and the evaluator never calls: module → names."""


def evaluator(checkout: Path) -> Evaluator:
    """KernelBench's evaluator from `checkout/src`, with all that can be loaded before a GPU is needed."""
    import torch

    found = imported(checkout)
    if torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]
    return found


def imported(checkout: Path) -> Evaluator:
    """The same, the GPU left alone. Raises BadInput where the checkout, or a package that it imports, is missing."""
    if not (checkout / "src/kernelbench/eval.py").is_file():
        raise BadInput(f"--cross-check needs KernelBench's checker, and {checkout} has no src/kernelbench/eval.py.")
    try:
        with _without_clients(), _importable(checkout / "src"):
            found: Evaluator = importlib.import_module("kernelbench.eval").eval_kernel_against_ref
    except ImportError as error:
        raise BadInput(f"--cross-check cannot load KernelBench's checker: {error}.") from error
    return found


def opinion(evaluate: Evaluator, reference: str, candidate: str) -> tuple[bool | None, str]:
    """Whether KernelBench's evaluator takes the candidate's source for correct, and what it says where it does not.

    None where it gives no verdict: it raised, or could not run its own reference.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            found = evaluate(reference, candidate, num_correct_trials=TRIALS, measure_performance=False, backend="triton")
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        return None, f"KernelBench's checker raised {type(error).__name__}: {_line(error)}"
    if found is None:
        return None, "KernelBench's checker gave no verdict"
    return bool(found.correctness), "" if found.correctness else "; ".join(_reasons(found.metadata))


def _reasons(metadata: dict[str, Any]) -> Iterator[str]:
    for name, value in metadata.items():
        if name not in ("hardware", "device"):
            yield f"{name}: {_line(value)}"


def _line(value: object) -> str:
    return (str(value).strip() or "no message").splitlines()[0][:200]


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@contextmanager
def _without_clients() -> Iterator[None]:
    """Empty stand-ins for the clients of language models that are not installed, until the evaluator is loaded."""
    made = []
    for name, members in CLIENTS.items():
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            module = types.ModuleType(name)
            for member in members:
                setattr(module, member, lambda *_, **__: None)
            sys.modules[name] = module
            made.append(name)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]
