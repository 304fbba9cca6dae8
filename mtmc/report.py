"""`report.md`: the story of a run in prose and tables. Every figure comes from the recorded steps and verdicts."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from mtmc.program import Program
from mtmc.step import Step
from mtmc.trajectories.store import Ending, Run
from mtmc.tree import Tree
from mtmc.verdict import Timing, Verified
from mtmc.wording import beside, details, gain, milliseconds, outcome, result, speedup, tally

LIKELIEST = 5  # actions of a choice shown in its table


def text(run: Run) -> str:
    """The whole report, Markdown."""
    steps, ending = run.steps(), run.ending() or Ending("The run has not ended yet.")
    tree = Tree(steps)
    key = ending.best or tree.best
    sections = [
        f"# {run.info.problem} on {run.info.profile.get('title', run.info.gpu)}",
        headline(ending, tree),
        ending.reason + "".join(f"\n\n{sentence}" for sentence in ending.discarded),
        *(["\n".join(f"- {note}" for note in run.info.notes)] if run.info.notes else []),
        *_times(ending, tree, key),
        *_steps(tree, steps, key),
        *_fallbacks(run, key),
        *_verification(run, ending, tree, key),
        *_needs(run, tree, key),
        "## Environment",
        table(("", ""), _environment(run)),
    ]
    return "\n\n".join(sections) + "\n"


def headline(ending: Ending, tree: Tree) -> str:
    """The outcome in one paragraph."""
    if not tree.best:
        return "**No program could be verified**, so there is nothing to hand back; the model stays as it is."
    if not ending.best:
        best = tree.timing(tree.best)
        assert best
        return (
            "**No speed-up.** No verified program is faster than PyTorch beyond noise "
            f"(the best: {speedup(best)}), so there is no `optimized.py`; the model stays as it is."
        )
    timing = _timing(ending, tree)
    if timing.kind == "predicted":
        return (
            f"**{timing.speedup:.2f}× faster than PyTorch eager, predicted.** Nothing was timed: the figure comes from the "
            "time model, applied to what the compiler made of the kernels."
        )
    interval = f"95 % interval {timing.low:.2f} to {timing.high:.2f}"
    return f"**{timing.speedup:.2f}× faster than PyTorch eager, measured** ({interval})."


def _timing(ending: Ending, tree: Tree) -> Timing:
    """The final timing, or the search's own where the run was interrupted."""
    verdict = ending.final or tree.verdict(ending.best)
    assert isinstance(verdict, Verified)
    return verdict.timing


def _times(ending: Ending, tree: Tree, key: str) -> Iterator[str]:
    if not key:
        return
    timing = _timing(ending, tree) if ending.best else tree.timing(key)
    assert timing
    ours = "this program" if ending.best else "best program found"
    rows = [("PyTorch eager", milliseconds(timing.reference_ms), "1.00×")]
    if timing.compiled_ms:
        rows.append(("torch.compile", milliseconds(timing.compiled_ms), f"{timing.reference_ms / timing.compiled_ms:.2f}×"))
    others = {name: ms for name, ms in timing.baselines_ms.items() if ms != timing.compiled_ms}
    rows += [(name, milliseconds(ms), f"{timing.reference_ms / ms:.2f}×") for name, ms in others.items()]
    rows.append((ours, milliseconds(timing.candidate_ms), speedup(timing)))
    if timing.floor_ms:
        bound = f"{timing.reference_ms / timing.floor_ms:.2f}× at most"
        rows.append(("floor of the hardware (computed)", milliseconds(timing.floor_ms), bound))
    yield "## Times"
    yield table(("", f"device time, {timing.kind}", "speed-up over eager"), rows)
    if timing.compiled_ms and timing.compiled_ms < timing.candidate_ms:
        yield "torch.compile is faster than this program here."
    extras = _extras(timing)
    if extras:
        yield "\n".join(f"- {line}" for line in extras)
    if timing.kernels_ms:
        shares = sorted(timing.kernels_ms.items(), key=lambda item: -item[1])
        yield table(("kernel", "time"), [(f"`{name}`", milliseconds(ms)) for name, ms in shares])


def _extras(timing: Timing) -> Iterable[str]:
    found = []
    if timing.host_ms is not None:
        eager = f" (eager: {milliseconds(timing.reference_host_ms)})" if timing.reference_host_ms is not None else ""
        what = "Launching, on the host" if timing.kind == "predicted" else "Wall time of a call, launches included"
        found.append(f"{what}: {milliseconds(timing.host_ms)}{eager}, {timing.kind}.")
    if timing.peak_bytes is not None:
        found.append(f"Peak memory: {timing.peak_bytes / 2**20:.1f} MiB.")
    found += [f"{name[0].upper()}{name[1:]}: {figure}." for name, figure in beside(timing)]
    found += [f"Note: {note}." for note in timing.notes]
    if timing.first_call_s is not None:
        found.append(f"The first call compiles the kernels: {timing.first_call_s:.1f} s.")
    return found


def _steps(tree: Tree, steps: tuple[Step, ...], key: str) -> Iterator[str]:
    path = tree.path(key) if key else ()
    yield "## Steps"
    first = tree.verdict(tree.root) if tree.root else None
    if first:
        yield f"The first program, one plain kernel an operation: {result(first)}." + _said(details(first))
    if path:
        heads = ("step", "what", "lines changed", "verdict", "speed-up", "gain")
        yield table(heads, [_row(step, tree) for step in path])
        yield from _choices(path)
    elsewhere = [step for step in steps if step.parent and step not in path]
    if tally(elsewhere):
        yield f"Also judged, and not on this path: {tally(elsewhere)}. `mtmc show` draws the whole tree."


def _choices(path: tuple[Step, ...]) -> Iterator[str]:
    """What the policy chose among at each step, where it gave probabilities; the likeliest in a table, the others below."""
    chosen = [step for step in path if step.probabilities]
    if chosen:
        yield "### What the policy chose among"
        yield "The probability that the policy gave to each legal action, for the steps above."
    for step in chosen:
        ranked = sorted(step.probabilities.items(), key=lambda item: -item[1])
        taken = step.action.id if step.action else ""
        yield f"Step {step.index}, {len(ranked)} legal actions:"
        yield table(("action", "probability"), [(_marked(name, taken), f"{p:.1%}") for name, p in ranked[:LIKELIEST]])
        rest = ranked[LIKELIEST:]
        if rest:
            listed = "; ".join(f"{_marked(name, taken)} {p:.2%}" for name, p in rest)
            yield f"<details><summary>the other {len(rest)}</summary>\n\n{listed}\n\n</details>"


def _marked(name: str, taken: str) -> str:
    return f"**`{name}`** (chosen)" if name == taken else f"`{name}`"


def _row(step: Step, tree: Tree) -> tuple[str, ...]:
    assert step.action
    figure = speedup(step.verdict.timing) if isinstance(step.verdict, Verified) else ""
    patch = f"[{step.index}](patches/{step.index:03d}.patch)"
    return (patch, step.action.sentence, str(step.changed_lines), outcome(step.verdict), figure, gain(step, tree))


def _fallbacks(run: Run, key: str) -> Iterator[str]:
    yield "## What stays a PyTorch call"
    calls = Counter(run.program(key).fallback_calls if key else ())
    listed = [f"`{name}`" + (f", {count} times" if count > 1 else "") for name, count in calls.items()]
    none = "Nothing: every operation runs in our Triton kernels." if key else "Everything, as there is no program of ours."
    yield "\n".join(f"- {line}" for line in listed) or none


def _verification(run: Run, ending: Ending, tree: Tree, key: str) -> Iterator[str]:
    if not key:
        return
    verdict = ending.final or tree.verdict(key)
    assert isinstance(verdict, Verified)
    accuracy = verdict.accuracy
    again = "It was judged once more, in a fresh process, after the search." if ending.final else ""
    lines = [
        f"- Precision rule: `{run.info.precision}`. {again}",
        f"- Relative error against fp64: {accuracy.candidate_error:.2e}; PyTorch's own: {accuracy.reference_error:.2e}.",
        *(f"- Checked: {name}." for name in accuracy.checked),
        *(f"- Not checked: {name}." for name in accuracy.skipped),
    ]
    yield "## What was verified"
    yield "\n".join(line.rstrip() for line in lines)


def _needs(run: Run, tree: Tree, key: str) -> Iterator[str]:
    if not key:
        return
    extra = sorted(imported(run.program(key)) - {"torch", "triton"} - sys.stdlib_module_names)
    library = sorted({name for step in tree.path(key) for name in step.library})
    assertions = list(dict.fromkeys(text for step in tree.path(key) for text in step.assertions))
    yield "## What the file needs"
    yield "torch and triton" + (f", and from your own imports: {', '.join(extra)}." if extra else "; nothing else.")
    if library:
        yield f"Device functions brought in from our library: {', '.join(f'`{name}`' for name in library)}."
    if assertions:
        yield "Checks inserted by the steps:\n\n" + "\n".join(f"- `{text}`" for text in assertions)


def imported(program: Program) -> set[str]:
    """Top-level names of the packages that a program imports."""
    found = set()
    for node in ast.walk(ast.parse(program.source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def _environment(run: Run) -> list[tuple[str, str]]:
    info = run.info
    limit = f", {info.minutes:g} minutes" if info.minutes else ""
    return [
        ("model", f"`{info.path}`, class `{info.entry}`, content {info.problem_hash}"),
        ("GPU", f"{info.profile.get('title', info.gpu)} (profile `{info.gpu}`)"),
        ("times", info.timing),
        ("search", f"policy {info.policy}, seed {info.seed}, at most {info.budget} candidates{limit}"),
        *((name, text) for name, text in info.versions.items() if text),
    ]


def _said(message: str) -> str:
    return f" {message}" if message else ""


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = tuple(heads)
    lines = [heads, ("---",) * len(heads), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
