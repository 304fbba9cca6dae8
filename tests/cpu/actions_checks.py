"""Runs the programs at the end of plans in the repaired interpreter; prints {plan: what is wrong, or null} as JSON.

TRITON_INTERPRET=1 python tests/cpu/actions_checks.py FILE

FILE holds a literal {plan: (program text, SIZES)}, made by `test_actions.py`, which has lowered the models anyway.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

from actions_cases import MODELS, PLANS, SMALL, problem
from lowering_checks import different

from mtmc.judge import candidate, interpreter


def check(name: str, text: str, sizes: dict[str, Any]) -> str | None:
    """How a program differs from eager at the small size."""
    model = PLANS[name].model
    small = problem(model, SMALL)
    Path(small.path).write_text(small.source)
    try:
        with candidate.imported(text, sizes) as module:
            found = different(small, module, [MODELS[model].slack])
    except Exception:  # noqa: BLE001  one plan must not hide the others
        found = traceback.format_exc()
    return found and f"{found}\n{text}"


def main(file: str) -> None:
    warnings.filterwarnings("ignore")
    interpreter.install()
    programs = ast.literal_eval(Path(file).read_text())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        results = {name: check(name, *program) for name, program in programs.items()}
        os.chdir("/")
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
