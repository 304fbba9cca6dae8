"""What was measured before: what of it is kept, how far it is believed, and what a search makes of it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace

import pytest

from mtmc import hardware_profiles, optimizer
from mtmc.action import Action, Edit
from mtmc.assembly import Options, Setup
from mtmc.policies import experience
from mtmc.policies.experience import SPREAD, Experience, Outcome, Place
from mtmc.policies.greedy import GreedyPolicy
from mtmc.policies.policy import View
from mtmc.problem import Problem
from mtmc.program import Program
from mtmc.search import PROVEN, Limits, Search
from mtmc.step import Step
from mtmc.verdict import Accuracy, Timing, Verified

LAYERS = 8
REFERENCE_MS = 10.0
STOP = Action("stop", "stop", "model", (), "Stop.")
UNIT = """
@triton.jit
def {name}_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.dot(tl.load(x_ptr + index), tl.load(x_ptr + index)))


def launch_{name}(x):
    BLOCK = 32
    {name}_kernel[(1,)](x, out, BLOCK=BLOCK, num_warps=4, num_stages=1)
    return out
"""


def network(layers: int = LAYERS) -> Program:
    return Program("import triton\n" + "\n".join(UNIT.format(name=f"layer{n}") for n in range(layers)))


def tile(unit: str, value: int) -> Action:
    return Action("tile", "tiling", unit, (("value", value),), f"Give {unit} a tile of {value}.")


def block(program: Program, unit: str) -> int:
    return int(program.text(f"launch_{unit}").split("BLOCK = ")[1].split()[0])


@dataclass
class Network:
    """Layers alike, each of which takes half the time with blocks of 128; the model holds 64 and 256 for better."""

    kind: str = "measured"
    noise: float = 0.001
    predicted: list[str] = field(default_factory=list)

    def propose(self, program, verdict):
        return (*(tile(unit, value) for value in (64, 128, 256) for unit in program.units), STOP)

    def apply(self, program, action):
        region = f"launch_{action.region}"
        old = program.text(region)
        new = old.replace(f"BLOCK = {block(program, action.region)}", f"BLOCK = {action['value']}")
        return Edit(program, program.replace(region, new), 1, 1)

    def predict(self, programs):
        self.predicted += [program.key for program in programs]
        factors = {32: 1.0, 64: 0.97, 128: 0.99, 256: 0.98}
        return [sum(factors[block(program, unit)] for unit in program.units) for program in programs]

    def close(self):
        pass

    def final(self, program):
        return self.judge(program)

    def judge(self, program):
        parts = {unit: {32: 1.0, 64: 0.999, 128: 0.5, 256: 1.2}[block(program, unit)] for unit in program.units}
        ms = sum(parts.values())
        speedup = REFERENCE_MS / ms
        low, high = speedup * (1 - self.noise), speedup * (1 + self.noise)
        return Verified(Timing(self.kind, REFERENCE_MS, ms, speedup, low, high, kernels_ms=parts), Accuracy(0.0, 0.0))


class Deaf(Experience):
    """Learns nothing."""

    def add(self, outcome):
        pass


def searched(known: Experience, world: Network | None = None, budget: int = 100) -> tuple[Search, list[Step]]:
    world = world or Network()
    search = Search(world, world, GreedyPolicy(), Limits(budget, keep_going=True), experience=known)
    return search, list(search.steps(network()))


def tuned(search: Search, steps: list[Step]) -> float:
    """Candidates until every layer has its best block."""
    done = [all(block(search.programs[s.child], f"layer{n}") == 128 for n in range(LAYERS)) for s in steps]
    return done.index(True) if True in done else math.inf


def outcome(problem: str, surprise: float, action: str = "tile value=128", size: int = 0, gain: float = 0.5) -> Outcome:
    return Outcome(problem, f"{problem} {surprise}", "kernel", action, size, gain, surprise)


def believed(*known: Outcome, own: str = "", size: int = 0) -> float | None:
    return Experience(known, own).expected(Place("kernel", "tile value=128", size, 1.0), True)


def test_a_step_is_kept_as_the_kernels_gain_and_the_programs_surprise():
    world, before = Network(), network(2)
    after = world.apply(before, tile("layer0", 128)).after
    step = Step(1, before.key, after.key, tile("layer0", 128), world.judge(after), 0.0, "greedy", predicted_ms=1.99)
    found = experience.measured("mine", (before, world.judge(before), 2.0), step)
    assert found and found.action == "tile value=128" and found.size == 0
    assert "BLOCK=32" in found.kernel and "warps=4" in found.kernel and "layer0" not in found.kernel
    assert found.gain == pytest.approx(math.log(2), abs=1e-4)
    assert found.surprise == pytest.approx((math.log(2 / 1.5) - math.log(2 / 1.99)) / 0.5, abs=1e-4)
    assert experience.outcomes("mine", [replace(step, parent="", action=None)], {after.key: after}) == []


@pytest.mark.parametrize("kind, family", [("predicted", "tiling"), ("measured", "fusion")])
def test_only_measured_tuning_is_kept(kind, family):
    world, before = Network(kind), network(2)
    action = replace(tile("layer0", 128), family=family)
    after = world.apply(before, action).after
    step = Step(1, before.key, after.key, action, world.judge(after), 0.0, "greedy", predicted_ms=1.99)
    assert experience.measured("mine", (before, world.judge(before), 2.0), step) is None


def test_kernels_whose_times_do_not_add_up_to_their_programs_tell_nothing():
    world, before = Network(), network(2)
    after = world.apply(before, tile("layer0", 128)).after
    verdict = world.judge(after)
    busy = replace(verdict, timing=replace(verdict.timing, kernels_ms={"layer0": 0.5, "layer1": 2.0}))
    step = Step(1, before.key, after.key, tile("layer0", 128), busy, 0.0, "greedy", predicted_ms=1.99)
    assert experience.measured("mine", (before, world.judge(before), 2.0), step) is None


def test_one_other_problem_is_not_believed_but_the_own_is():
    assert believed(outcome("a", 0.4)) is None
    assert believed(outcome("a", 0.4), own="a") == pytest.approx(0.4 * (1 - SPREAD**2 / 0.4**2))
    assert believed(outcome("a", 0.4), outcome("a", 0.41)) is None, "two steps of one problem are one problem"
    assert believed(outcome("a", 0.4), outcome("b", 0.4)) == pytest.approx(0.4 * (1 - SPREAD**2 / 4 / 0.4**2))


def test_what_problems_disagree_on_is_not_believed():
    assert believed(outcome("a", 0.4), outcome("b", -0.35)) == 0.0
    agreeing = believed(*(outcome(name, 0.4) for name in "abcdef"))
    assert agreeing and 0.39 < agreeing < 0.4


def test_only_kernels_of_the_same_size_count():
    known = [*(outcome(name, 0.6) for name in "abcd"), *(outcome(name, -0.2, size=-2) for name in "efgh")]
    here, there = believed(*known), believed(*known, size=-2)
    assert here and there is not None and here > 0.5 and there < -0.1
    assert believed(*known, size=-1) is None


def test_what_a_search_measures_goes_to_equal_kernels_next():
    deaf, plain = searched(Deaf())
    learning, steps = searched(Experience())
    assert tuned(learning, steps) <= LAYERS + 4 < tuned(deaf, plain)
    assert len(steps) < 3 * LAYERS and "No action is left" in learning.reason


def test_a_warm_search_goes_straight_to_what_helped_elsewhere():
    _, steps = searched(Experience(own="one"))
    kept = list(searched(Experience(own="one"))[0].experience)
    others = [replace(known, problem=name) for name in ("one", "two") for known in kept]
    warm, steps = searched(Experience(others, "three"))
    assert tuned(warm, steps) == LAYERS
    again, repeated = searched(Experience(others, "three"))
    assert [s.child for s in repeated] == [s.child for s in steps], "equal stores give equal searches"


def test_experience_changes_nothing_where_times_are_predicted():
    known = Experience([replace(o, problem=name) for name in "ab" for o in searched(Experience())[0].experience])
    plain, warm = Network("predicted"), Network("predicted")
    assert [s.child for s in searched(known, warm)[1]] == [s.child for s in searched(Deaf(), plain)[1]]
    assert warm.predicted == plain.predicted


def test_gains_below_the_noise_are_not_looked_for():
    world = Network()
    view = View(network(), world.judge(network()), (tile("layer0", 64), STOP), best_ms=1.0, measured=True, failures=9)
    close = replace(view, predicted={tile("layer0", 64).id: 0.985})
    assert GreedyPolicy().choose(replace(close, noise=0.001), None).action.family == "tiling"
    assert GreedyPolicy().choose(replace(close, noise=0.03), None).action.family == "stop"


def test_what_measured_outcomes_speak_of_leaves_no_room_for_doubt():
    world, action = Network(), tile("layer0", 64)
    view = View(network(), world.judge(network()), (action, STOP), {action.id: 1.0}, best_ms=1.0, measured=True)
    assert GreedyPolicy().choose(view, None).action == action
    assert GreedyPolicy().choose(replace(view, seen=frozenset({action.id})), None).action == STOP


def test_a_store_passes_over_damaged_lines_and_takes_a_step_once(tmp_path):
    path = experience.store(tmp_path, "h200 / mine")
    assert path.parent == tmp_path / "outcomes" and experience.read(path) == []
    first, second = outcome("a", 0.4), outcome("b", 0.2)
    experience.append(path, [first])
    with path.open("a") as file:
        file.write('{"problem": "torn\n{"other": "schema"}\n')
    experience.append(path, [second, first])
    assert experience.read(path) == [first, second, first]
    assert len(Experience(experience.read(path))) == 2


@pytest.fixture
def optimized(tmp_path, monkeypatch):
    """`optimize` on the network, under a name and with options, in a folder with a cache of its own."""

    def assemble(problem, options, doing):
        world = Network()
        return Setup(network(), world, world, hardware_profiles.load("h100"), True, chip="bench")

    def run(name, resume=False, **options):
        problem = Problem(name, "", "model.py", "Model")
        return optimizer.optimize_problem(problem, Options(keep_going=True, **options), resume=resume)

    monkeypatch.setattr(optimizer, "assemble", assemble)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return run


def test_optimize_starts_from_what_other_problems_measured_and_says_so(optimized, tmp_path):
    reports = [(optimized(name).run_folder / "report.md").read_text() for name in ("one", "two", "three")]
    assert "Warm start" not in reports[0] and "in searches of 2 problems" in reports[2]
    store = experience.read(tmp_path / "cache/mtmc/outcomes/bench.jsonl")
    assert {known.problem for known in store} == {"one", "two", "three"}
    first, last = (optimized(name, budget=LAYERS).steps for name in ("one", "four"))
    assert last[-1].verdict.timing.speedup == pytest.approx(2 * REFERENCE_MS / LAYERS)
    assert first[-1].verdict.timing.speedup == pytest.approx(2 * REFERENCE_MS / LAYERS), "it knows its own outcomes too"


def test_no_warm_start_neither_reads_nor_writes(optimized, tmp_path):
    cold = optimized("one", warm_start=False)
    assert not (tmp_path / "cache/mtmc/outcomes").exists() and not (cold.run_folder / "outcomes.jsonl").exists()
    for name in ("two", "three"):
        optimized(name)
    again = optimized("one", warm_start=False)
    assert [s.child for s in again.steps] == [s.child for s in cold.steps]


def test_a_resumed_run_chooses_by_what_was_known_when_it_began(optimized):
    for name in ("one", "two"):
        optimized(name)
    whole = optimized("three", budget=6)
    cut = optimized("four", budget=3)
    optimized("five", warm_start=True)
    gone_on = optimized("four", resume=True, budget=6)
    assert len(cut.steps) == 4 and [s.child for s in gone_on.steps] == [s.child for s in whole.steps]


def test_what_comes_with_mtmc_is_believed_of_products():
    known = experience.seed("h200")
    assert experience.seed("no such GPU") == [] and len({o.problem for o in known}) > 10
    kernel = "float32 fp16x3 loop BLOCK_M=64 BLOCK_N=64 BLOCK_K=64 warps=4 stages=1"
    gain = Experience(known).expected(Place(kernel, "product_tile tile=0", 0, 1.0), False)
    assert gain and gain > 10 * PROVEN
    assert all(set(json.loads(line)) == set(Outcome.__annotations__) for line in experience.text(known).splitlines())
