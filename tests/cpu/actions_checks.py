"""Runs plans of actions_cases.py in the repaired interpreter at odd sizes; prints {plan: what is wrong, or null} as JSON.

TRITON_INTERPRET=1 python tests/cpu/actions_checks.py PART PARTS | PLAN …
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

from actions_cases import MODELS, PLANS, SMALL, Plan, edits, lowered, problem
from lowering_checks import different

from mtmc.judge import candidate, interpreter


def mistake(plan: Plan) -> str | None:
    """How the program at the end of a plan differs from eager."""
    *_, last = edits(plan)
    made, variant = lowered(plan.model), problem(plan.model, SMALL)
    if made.sizes[0] is None:
        return "the text at the small size differs"
    Path(variant.path).write_text(variant.source)
    with candidate.imported(last.after.source, made.sizes[0]) as module:
        found = different(variant, module, [MODELS[plan.model].slack])
    return found and f"{found}\n{last.after.source}"


def check(name: str) -> str | None:
    try:
        return mistake(PLANS[name])
    except Exception:  # noqa: BLE001  one plan must not hide the others
        return traceback.format_exc()


def main(arguments: list[str]) -> None:
    warnings.filterwarnings("ignore")
    interpreter.install()
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    part, parts = numbers or (0, 1)
    models = set(list(MODELS)[part::parts])  # a model is lowered once
    chosen = [n for n in arguments if not n.isdigit()] or [n for n, plan in PLANS.items() if plan.model in models]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        results = {name: check(name) for name in chosen}
        os.chdir("/")
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
