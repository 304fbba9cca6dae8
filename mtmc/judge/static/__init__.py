"""Static checks: what a candidate's text gives away before anything runs. docs/checks.md says what each finds and misses.

Pure work on the syntax tree: nothing is imported, nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mtmc.errors import BadInput
from mtmc.judge.static import compilers, control, harness, numbers, state, switches, work
from mtmc.judge.static.candidate import Candidate
from mtmc.judge.static.rule import Case, Hit, Rule
from mtmc.problem import Problem
from mtmc.program import Program
from mtmc.verdict import Finding, Rejected, rejection

# In the order in which findings are told: first what a person would call the reason.
RULES: dict[str, Rule] = {
    "inductor_code": Rule("reject", "certain", compilers.inductor_code),
    "torch_compile": Rule("reject", "certain", compilers.torch_compile),
    "outside": Rule("reject", "certain", harness.outside),
    "monkey_patch": Rule("reject", "certain", switches.monkey_patch),
    "introspection": Rule("reject", "certain", control.introspection),
    "dynamic_code": Rule("reject", "certain", control.dynamic_code),
    "environment": Rule("reject", "certain", control.environment),
    "threads": Rule("reject", "certain", harness.threads),
    "other_stream": Rule("reject", "certain", harness.other_stream),
    "timing": Rule("reject", "certain", harness.timing),
    "global_flag": Rule("reject", "certain", switches.global_flag),
    "lazy_output": Rule("reject", "certain", switches.lazy_output),
    "version_counter": Rule("reject", "certain", state.version_counter),
    "pointer_cache": Rule("reject", "certain", state.pointer_cache),
    "call_count": Rule("reject", "certain", control.call_count),
    "hard_coded": Rule("reject", "certain", numbers.hard_coded),
    "output_memo": Rule("reject", "certain", state.output_memo),
    "early_work": Rule("reject", "likely", state.early_work),
    "reference_call": Rule("reject", "certain", work.reference_call),
    "try_fallback": Rule("reject", "certain", control.try_fallback),
    "ghost_branch": Rule("reject", "certain", control.ghost_branch),
    "constant_output": Rule("reject", "certain", work.constant_output),
    "unused_result": Rule("reject", "certain", work.unused_result),
    "copy_kernel": Rule("reject", "certain", work.copy_kernel),
    "no_kernel": Rule("reject", "certain", work.no_kernel),
    "precision": Rule("warn", "likely", numbers.precision),
}
# What a program of `mtmc optimize` may do: give work back to PyTorch, which the optimizer counts and reports itself.
LIBRARY_USE = ("no_kernel", "copy_kernel", "unused_result")


def select(names: Iterable[str] | None = None) -> dict[str, Rule]:
    """Rules by name (`static.NAME` or `NAME`), in the table's order; all by default. Raises BadInput for unknown ones."""
    if names is None:
        return dict(RULES)
    wanted = [name.removeprefix("static.") for name in names]
    for name in wanted:
        if name not in RULES:
            raise BadInput(f"There is no static check {name} (known: {', '.join(RULES)}).")
    return {name: rule for name, rule in RULES.items() if name in wanted}


def check(
    source: str, problem: Problem | None = None, entry: str = "", names: Iterable[str] | None = None
) -> tuple[Finding, ...]:
    """Findings of the selected rules, those that reject first; none for text that does not parse, which importing it tells.

    `entry` is what will be called: a function's name, or a method of `ModelNew`; by default `ModelNew.kernels` or
    `.forward`, or every public function of a file without `ModelNew`. With a method given, only what it calls is looked at:
    the rest of such a program was written by `mtmc` itself.
    """
    rules = select(names)
    case = Case(Candidate(source, problem, entry))
    try:
        case.candidate.tree  # noqa: B018
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = [finding for name, rule in rules.items() for finding in _findings(name, rule, case)]
    return tuple(sorted(found, key=lambda finding: finding.level != "reject"))


def own_program(problem: Problem, program: Program) -> Rejected | None:
    """What the text of one of our own programs gives away; giving work back to PyTorch is no hack there, and is counted.

    The text of foreign candidates is checked before they are judged (`mtmc.verification`).
    """
    rules = [name for name in RULES if name not in LIBRARY_USE]
    return rejection(check(program.source, problem, "kernels", rules))


def _findings(name: str, rule: Rule, case: Case) -> Iterator[Finding]:
    """One finding a line and level."""
    seen = set()
    for hit in _hits(rule, case):
        finding = _finding(name, rule, hit)
        if (finding.line, finding.level) not in seen:
            seen.add((finding.line, finding.level))
            yield finding


def _hits(rule: Rule, case: Case) -> list[Hit]:
    try:
        return list(rule.find(case))
    except RecursionError:
        return [Hit(None, "the text is nested too deeply to be followed", certainty="likely")]


def _finding(name: str, rule: Rule, hit: Hit) -> Finding:
    line = getattr(hit.node, "lineno", 0)
    return Finding(f"static.{name}", line, hit.why, hit.certainty or rule.certainty, hit.level or rule.level)
