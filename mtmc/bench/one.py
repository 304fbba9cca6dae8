"""The process of one problem: `python -m mtmc.bench.one TASK` optimises it, or asks KernelBench's checker about the answer.

TASK is a JSON object (see `Task`); what was found goes to its file `answer` as fields of a Row. A process for each problem
keeps a lost GPU context, a leak or a hang from the others.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtmc.assembly import Options, assemble
from mtmc.bench import crosscheck
from mtmc.capture import Capture, capture
from mtmc.errors import BadInput, InfraError
from mtmc.floor import floor
from mtmc.graph import Graph
from mtmc.hardware_profiles import Profile, detect
from mtmc.judge.cache import cache_folder
from mtmc.judge.judge import LARGE
from mtmc.judge.predict import KernelTime, predict
from mtmc.judge.processes import PR_SET_PDEATHSIG, prctl
from mtmc.judge.turns import turn
from mtmc.optimizer import Result, optimize_problem
from mtmc.passes import type_bytes
from mtmc.problem import Problem, load
from mtmc.program import Program
from mtmc.trajectories.files import put
from mtmc.trajectories.store import Run
from mtmc.tree import Tree
from mtmc.verdict import Infra, Launch, Verdict, Verified
from mtmc.wording import details


@dataclass(frozen=True)
class Asked:
    """How to optimise each problem; recorded in every row, so that rows made alike can be told.

    `cached` takes verdicts from the cache, where runs of other policies have left theirs, and leaves its own there.
    """

    baselines: tuple[str, ...] = ("compile-default",)
    budget: int = 16
    minutes: float = 2.0
    seed: int = 0
    precision: str = "strict"
    warm_start: bool = True
    policy: str = "greedy"
    cached: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "baselines": list(self.baselines)}


@dataclass(frozen=True)
class Task:
    """One problem's process. `folder` is its run folder, `answer` the file for what it finds.

    With a `checkout` of KernelBench it asks the checker there about the program that an earlier task has left in `folder`.
    """

    file: str
    folder: str
    answer: str
    asked: Asked = Asked()
    checkout: str = ""

    def text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> Task:
        data = json.loads(text)
        asked = {**data.pop("asked")}
        return Task(**data, asked=Asked(**{**asked, "baselines": tuple(asked["baselines"])}))


def measure(task: Task) -> dict[str, Any]:
    """Fields of the problem's Row. Raises BadInput and InfraError."""
    began, problem, profile = time.monotonic(), load(task.file), detect()
    if profile is None:
        raise BadInput("there is no GPU here")
    captured = capture(problem)
    if reason := too_large(captured.graph, profile):
        return {"status": "skipped", "message": reason}
    options = Options(
        budget=task.asked.budget,
        minutes=task.asked.minutes,
        seed=task.asked.seed,
        precision=task.asked.precision,
        measure=True,
        cache_days=Options.cache_days if task.asked.cached else 0,
        keep_going=True,
        library=False,
        baselines=task.asked.baselines,
        warm_start=task.asked.warm_start,
        policy=task.asked.policy,
    )
    result = optimize_problem(problem, options, _folder(task), (Path(task.folder) / "run.json").exists())
    row = found(result, lambda program: _judged(problem, options, program), profile)
    row |= {"spent": {name: round(seconds, 2) for name, seconds in result.spent.items()}}
    return {**row, **_floors(problem, captured, profile, options), "seconds": round(time.monotonic() - began, 1)}


def too_large(graph: Graph | None, profile: Profile) -> str:
    """Why a problem cannot be judged on a GPU: inputs, state and two sets of results do not fit. Empty where they do."""
    if graph is None:
        return ""
    given = sum(type_bytes(node.type) for node in graph.nodes if node.op in ("input", "state"))
    needed = given + 2 * sum(type_bytes(graph[name].type) for name in graph.results)
    room = profile.memory_gb * 1e9
    if needed <= room:
        return ""
    return f"inputs, state and both sides' results take {needed / 1e9:.0f} GB, the GPU has {room / 1e9:.0f} GB"


def _folder(task: Task) -> Path:
    """The run folder; what a process left that was killed before it had begun is cleared away."""
    folder = Path(task.folder)
    if folder.exists() and not (folder / "run.json").exists():
        shutil.rmtree(folder)
    return folder


def _judged(problem: Problem, options: Options, program: Program) -> Verdict:
    """The last judgement of a program that is not handed back: it is timed like the others."""
    setup = assemble(problem, options, lambda _: None)
    try:
        return setup.judge.final(program)
    finally:
        setup.judge.close()


def found(result: Result, judged: Callable[[Program], Verdict], profile: Profile) -> dict[str, Any]:
    """What a finished run says of its problem; `judged` gives the last verdict on a program that did not beat eager."""
    run = Run.open(result.run_folder)
    tree = Tree(result.steps)
    row: dict[str, Any] = {
        "reason": result.reason,
        "candidates": sum(not step.cached for step in result.steps),
        "handed_back": result.verdict is not None,
    }
    if not tree.best:
        last = result.steps[-1].verdict if result.steps else None
        status = "infra" if isinstance(last, Infra) else "none"
        return {**row, "status": status, "message": details(last) if last else "no candidate was judged"}
    ending = run.ending()
    program = run.program(ending.best if ending and ending.best else tree.best)
    verdict = result.verdict or judged(program)
    row |= {"units": len(program.units), "fallback_calls": list(program.fallback_calls), "status": verdict.status}
    steps = [step for step in tree.path(program.key) if step.action]
    row |= {"path": [step.action.id for step in steps if step.action]}
    row |= {"most_lines": max((step.changed_lines for step in steps), default=0)}
    if not isinstance(verdict, Verified):
        return {**row, "message": details(verdict)}
    return {**row, **_measured(verdict), "traffic": traffic(verdict.launches, profile)}


def _measured(verdict: Verified) -> dict[str, Any]:
    timing, accuracy = verdict.timing, verdict.accuracy
    return {
        "eager_ms": timing.reference_ms,
        "compiled_ms": timing.compiled_ms,
        "baselines_ms": timing.baselines_ms,
        "ours_ms": timing.candidate_ms,
        "over_eager": timing.speedup,
        "low": timing.low,
        "high": timing.high,
        "host_ms": timing.host_ms,
        "launch_us": timing.launch_us,
        "graph_ms": timing.graph_ms,
        "eager_graph_ms": timing.reference_graph_ms,
        "sm_mhz": timing.clocks.get("sm_mhz"),
        "floor_ms": timing.floor_ms or None,
        "kernels_ms": timing.kernels_ms,
        "kernel_share": timing.kernel_share,
        "peak_bytes": timing.peak_bytes,
        "error": accuracy.candidate_error,
        "eager_error": accuracy.reference_error,
        "checked": list(accuracy.checked),
        "skipped": list(accuracy.skipped),
        "notes": list(timing.notes),
    }


def traffic(launches: Sequence[Launch], profile: Profile) -> dict[str, tuple[float, str]]:
    """By unit: GB to and from DRAM by the model, and the pipe that it takes for the slowest of the unit's longest kernel."""
    found: dict[str, list[KernelTime]] = {}
    for kernel in predict(launches, profile).kernels:
        found.setdefault(kernel.name.removesuffix("_kernel"), []).append(kernel)
    return {
        unit: (round(sum(k.dram_bytes for k in kernels) / 1e9, 4), max(kernels, key=lambda k: k.ms).bound)
        for unit, kernels in found.items()
    }


def _floors(problem: Problem, captured: Capture, profile: Profile, options: Options) -> dict[str, Any]:
    """The floor by passes; nothing where the model was not captured."""
    least = floor(problem, captured.graph, profile, options.precision) if captured.graph else None
    return {"passes_ms": least.passes_ms, "floor_gb": round(least.passes_gb, 4) or None} if least else {}


def check(task: Task) -> dict[str, Any]:
    """KernelBench's opinion of the program that the run folder holds: the answer, else the best one. Holds the GPU."""
    run = Run.open(Path(task.folder))
    ending = run.ending()
    program = run.program(ending.best if ending and ending.best else Tree(run.steps()).best)
    evaluate, reference = crosscheck.evaluator(Path(task.checkout)), load(task.file).source
    peak = ending.final.timing.peak_bytes if ending and isinstance(ending.final, Verified) else None
    with turn(cache_folder() / "compiled", gpu=True, alone=False, shares=peak is not None and peak <= LARGE):
        correct, note = crosscheck.opinion(evaluate, reference, program.source)
    return {"kernelbench_correct": correct, "kernelbench_note": note}


def answer(task: Task) -> dict[str, Any]:
    """What the task asks for; a problem that cannot be used, or a machine that failed, as a status with a message."""
    try:
        return check(task) if task.checkout else measure(task)
    except BadInput as error:
        return {"status": "none", "message": str(error)}
    except InfraError as error:
        return {"status": "infra", "message": str(error)}


def main() -> None:
    """Do the task given as the first argument; the answer appears whole or not at all."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # with the runner, which would not know of it when it is started again
    task = Task.read(sys.argv[1])
    put(Path(task.answer), json.dumps(answer(task)))


if __name__ == "__main__":
    main()
