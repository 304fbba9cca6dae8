"""`optimize` from a model to a run folder, with fakes in the place of compiler and GPU."""

from __future__ import annotations

import pickle
import sys

import pytest
import torch
from fakes import FIRST, FakeEvaluator, FakeMoves, value

from mtmc import assembly, hardware_profiles, live, optimizer
from mtmc.assembly import Options, Setup
from mtmc.errors import BadInput, InfraError
from mtmc.problem import load
from mtmc.trajectories.store import Run
from mtmc.verdict import Infra, Wrong

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.fc = nn.Linear(width, width, bias=bias)

    def forward(self, x, ids):
        return self.fc(x)[ids]

def get_inputs():
    return [torch.rand(4, 8), torch.zeros(2, dtype=torch.int64)]

def get_init_inputs():
    return [8]
"""


class Evaluator(FakeEvaluator):
    closed = False

    def close(self):
        self.closed = True


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder to run in, a problem in it, and a fake evaluator behind `optimize`."""
    evaluator = Evaluator()
    profile = hardware_profiles.load("h100")

    def assemble(problem, options, doing):
        return Setup(FIRST, FakeMoves(), evaluator, profile, evaluator.kind == "measured", ("aten.lstm has no template.",))

    monkeypatch.setattr(optimizer, "assemble", assemble)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    return evaluator


def run(**more):
    return optimizer.optimize_problem(load("model.py"), Options(**more.pop("options", {})), **more)


def test_a_run_folder_comes_out(world):
    result = run()
    assert str(result.run_folder) == "runs/model-h100-001"
    assert sorted(p.name for p in result.run_folder.iterdir() if p.name[0] != ".") == [
        "optimized.py", "patches", "programs", "report.md", "result.json", "run.json", "steps.jsonl",
    ]  # fmt: skip
    assert (result.run_folder / "optimized.py").read_text() == result.source
    assert result.speedup == pytest.approx(4.09, abs=0.01)
    assert len(result.path) == 5
    assert world.closed


def test_the_answer_is_judged_once_more(world):
    result = run()
    best = result.path[-1].child
    assert world.judged.count(best) == 2 and world.judged[-1] == best
    assert Run.open(result.run_folder).ending().final == result.verdict


def test_a_best_program_that_does_not_hold_gives_way_to_the_next(world, monkeypatch):
    fresh = []

    def final(program):
        fresh.append(program.key)
        return Wrong("differs in a fresh process") if len(fresh) == 1 else world.judge(program)

    monkeypatch.setattr(world, "final", final)
    result = run()
    assert fresh[0] == Run.open(result.run_folder).ending().discarded[0].split()[0]
    assert result.verdict and result.source == Run.open(result.run_folder).program(fresh[1]).source
    assert "differs in a fresh process" in (result.run_folder / "report.md").read_text()


def test_a_machine_that_fails_says_nothing_of_the_best_program(world, monkeypatch):
    judge, faults = world.judge, [Infra("the driver is gone")]
    monkeypatch.setattr(world, "final", lambda program: faults.pop() if faults else judge(program))
    assert run().verdict, "judged once more"
    faults += [Infra("the driver is gone")] * 2
    with pytest.raises(InfraError, match="the driver is gone"):
        run()
    assert run(resume=True).verdict


def test_nothing_slower_is_handed_back(world):
    world.reference_ms = 1.0
    result = run()
    assert (result.source, result.verdict, result.speedup) == (None, None, 1.0)
    assert len(world.judged) == len(set(world.judged)), "nothing was worth a last judgement"
    assert not (result.run_folder / "optimized.py").exists()
    assert "**No speed-up.**" in (result.run_folder / "report.md").read_text()


def test_a_gain_within_the_noise_is_not_handed_back(world):
    world.kind, world.noise, world.reference_ms = "measured", 0.5, 3.0
    assert run().verdict is None


def test_an_interrupt_keeps_the_best_so_far(world, monkeypatch):
    judge = world.judge

    def interrupted(program):
        if len(world.judged) == 3:
            raise KeyboardInterrupt
        return judge(program)

    monkeypatch.setattr(world, "judge", interrupted)
    result = run()
    assert result.interrupted and result.verdict and len(result.steps) == 3
    assert "Interrupted" in (result.run_folder / "report.md").read_text()
    monkeypatch.setattr(world, "judge", judge)
    resumed = run(resume=True)
    assert resumed.run_folder == result.run_folder
    assert len(world.judged) == len(set(world.judged)) + 1, "only the answer was judged twice"


def test_a_resumed_run_ends_like_an_unbroken_one(world):
    whole = run(folder="whole")
    cut = run(folder="cut", options={"budget": 2})
    world.judged.clear()
    resumed = run(folder="cut", resume=True)
    assert resumed.source == whole.source != cut.source
    assert [(s.index, s.parent, s.child) for s in resumed.steps] == [(s.index, s.parent, s.child) for s in whole.steps]
    assert not {s.child for s in cut.steps} & set(world.judged)


def test_a_fault_of_the_machine_is_judged_again_on_resume(world, monkeypatch):
    judge = world.judge
    monkeypatch.setattr(world, "judge", lambda p: Infra("no memory") if value(p, "", "FUSED") else judge(p))
    first = run(folder="r")
    assert any(s.verdict.status == "infra" for s in first.steps)
    monkeypatch.setattr(world, "judge", judge)
    resumed = run(folder="r", resume=True)
    assert value(Run.open(resumed.run_folder).program(resumed.path[-1].child), "", "FUSED") == 1
    assert [s.index for s in resumed.steps] == list(range(len(resumed.steps)))
    assert all(step.verdict.correct for step in resumed.steps[len(first.steps) :])
    assert {s.child for s in first.steps if not s.verdict.correct} <= {s.child for s in resumed.steps if s.verdict.correct}


def test_bad_options_leave_no_trace(world, tmp_path):
    with pytest.raises(BadInput, match="no policy"):
        run(options={"policy": "clever"})
    with pytest.raises(BadInput, match="no run of model"):
        run(resume=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.py"]


def module_from(path):
    spec = __import__("importlib.util").util.spec_from_file_location("user_model", path)
    namespace = __import__("importlib.util").util.module_from_spec(spec)
    sys.modules["user_model"] = namespace
    spec.loader.exec_module(namespace)
    return namespace


def test_a_live_module_becomes_a_problem(world, tmp_path):
    module = module_from(tmp_path / "model.py").Model(16, bias=False)
    problem = live.problem_of(module, (torch.rand(4, 16), torch.tensor([0, 3])), "16, bias=False")
    assert (problem.entry, problem.init) == ("Model", "16, bias=False")
    assert [(i.name, i.dtype, i.shape, i.high) for i in problem.inputs] == [
        ("x", "float32", (4, 16), 2),
        ("ids", "int64", (2,), 4),
    ]


@pytest.mark.parametrize(
    "inputs, init, message",
    [
        ((torch.rand(4, 16), torch.tensor([0])), "16", "fc.bias"),
        ((torch.rand(4, 16), torch.tensor([0])), "8, bias=False", "fc.weight"),
        ((), "16, bias=False", r"forward\(x, ids\)"),
        ((torch.rand(4, 16), 3), "16, bias=False", r"forward\(x, ids\)"),
    ],
)
def test_a_live_module_that_cannot_be_rebuilt_is_refused(world, tmp_path, inputs, init, message):
    module = module_from(tmp_path / "model.py").Model(16, bias=False)
    with pytest.raises(BadInput, match=message):
        live.problem_of(module, inputs, init)


def test_an_optimised_module_has_the_weights_and_mode_of_the_given_one(world, tmp_path):
    module = module_from(tmp_path / "model.py").Model(16, bias=False).eval()
    inputs = (torch.rand(4, 16), torch.tensor([0, 3]))
    problem = live.problem_of(module, inputs, "16, bias=False")
    (tmp_path / "optimized.py").write_text(MODEL + "\nclass ModelNew(Model):\n    pass\n")
    new = live.with_weights(tmp_path / "optimized.py", problem, module)
    assert type(new).__name__ == "ModelNew" and not new.training
    torch.testing.assert_close(new(*inputs), module(*inputs))
    assert pickle.loads(pickle.dumps(new)).fc.weight.equal(module.fc.weight)


def test_the_package_offers_optimize_also_after_its_modules_were_imported(world):
    import mtmc.optimizer

    assert callable(mtmc.optimize) and mtmc.optimize is optimizer.optimize
    assert mtmc.optimize("model.py", gpu="h100", budget=1).speedup > 1
    with pytest.raises(AttributeError):
        mtmc.optimise  # noqa: B018


def test_an_unknown_precision_is_refused_before_anything_runs(world):
    with pytest.raises(BadInput, match="unknown precision"):
        assembly.assemble(load("model.py"), Options(gpu="h100", precision="exact"), lambda _: None)
