"""The command: what it prints, where, and its exit codes. Compiler and GPU are fakes here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import FIRST, FakeEvaluator, FakeMoves

from mtmc import cli, errors, hardware_profiles, optimizer
from mtmc.assembly import Setup
from mtmc.errors import InfraError
from mtmc.judge.cache import made_with
from mtmc.verdict import CompileError

MODEL = "import torch\nclass Model(torch.nn.Module):\n    pass\ndef get_inputs():\n    return []\n"


class Evaluator(FakeEvaluator):
    def close(self):
        pass


@pytest.fixture
def world(tmp_path, monkeypatch):
    evaluator = Evaluator()

    def assemble(problem, options, doing):
        return Setup(FIRST, FakeMoves(), evaluator, hardware_profiles.load(options.gpu or "h100"), False, ("A note.",))

    monkeypatch.setattr(optimizer, "assemble", assemble)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    return evaluator


@pytest.fixture
def mtmc(monkeypatch, capsys):
    """Run the command in this process: (exit code, stdout, stderr)."""
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["mtmc", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call


def test_optimize_shows_progress_then_the_steps_and_the_speedup(world, mtmc):
    code, out, err = mtmc("optimize", "model.py", "--gpu", "h200")
    assert code == 0
    assert "NVIDIA H200" in err and "A note." in err
    assert "  1/40 1.16× predicted          Fuse relu into gemm." in err
    assert "Use a tile of 128 in gemm." in out
    assert "4.09× faster than PyTorch eager, predicted." in out
    assert "runs/model-h200-001/optimized.py" in out


def test_json_is_one_object_on_stdout_and_quiet_is_quiet(world, mtmc):
    code, out, err = mtmc("optimize", "model.py", "--json", "--quiet", "--budget", "3")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert facts["timing"]["kind"] == "predicted" and facts["speedup"] == facts["timing"]["speedup"] > 1
    assert facts["judged"] == 4 and "budget" in facts["reason"] and facts["verified"]
    assert facts["path"][0] == "Fuse relu into gemm."


def test_no_speedup_is_a_success_that_says_so(world, mtmc):
    world.reference_ms = 1.0
    code, out, _ = mtmc("optimize", "model.py")
    assert code == 0 and "No speed-up." in out and "001/optimized.py" not in out
    facts = json.loads(mtmc("optimize", "model.py", "--json", "-q")[1])
    assert (facts["speedup"], facts["timing"], facts["optimized"]) == (1.0, None, None)


def test_no_verified_program_is_code_3(world, mtmc, monkeypatch):
    monkeypatch.setattr(world, "judge", lambda program: CompileError("no such op"))
    code, out, _ = mtmc("optimize", "model.py", "-q")
    assert code == 3 and "No program could be verified" in out


def test_a_fault_of_the_machine_is_code_3(world, mtmc, monkeypatch):
    def fails(program):
        raise InfraError("The worker was lost.")

    monkeypatch.setattr(world, "judge", fails)
    code, _, err = mtmc("optimize", "model.py", "-q")
    assert (code, err) == (3, "mtmc: The worker was lost.\n")


def test_an_interrupt_is_code_130_and_keeps_the_best(world, mtmc, monkeypatch, tmp_path):
    judge = world.judge

    def interrupted(program):
        if len(world.judged) == 3:
            raise KeyboardInterrupt
        return judge(program)

    monkeypatch.setattr(world, "judge", interrupted)
    code, out, _ = mtmc("optimize", "model.py", "-q")
    assert code == 130 and "Interrupted" in out
    assert (tmp_path / "runs/model-h100-001/optimized.py").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["absent.py"], "absent.py"),
        ([], "Give a model file"),
        (["model.py", "--gpu", "h1000"], "known: a100"),
        (["model.py", "--policy", "clever"], "known are greedy, random"),
        (["model.py", "--entry", "Other"], "no class Other"),
        (["model.py", "--inputs", "x=float99[3]"], "float99"),
        (["model.py", "--run", "."], "not empty and is not a run folder"),
        (["model.py", "--resume"], "no run of model"),
    ],
)
def test_bad_input_is_one_sentence_code_2_and_no_trace(world, mtmc, tmp_path, arguments, message):
    code, out, err = mtmc("optimize", *arguments, "-q")
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1 and "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["model.py"]


def test_unknown_options_and_values_are_code_2(mtmc):
    assert mtmc("optimize", "model.py", "--budgets", "3")[0] == 2
    assert mtmc("optimize", "model.py", "--precision", "sloppy")[0] == 2
    assert mtmc("optimize", "model.py", "--budget", "-1")[0] == 2


def test_a_second_run_does_not_touch_the_first_and_resume_goes_on(world, mtmc, tmp_path):
    mtmc("optimize", "model.py", "-q", "--budget", "2")
    before = (tmp_path / "runs/model-h100-001/steps.jsonl").read_text()
    code, _, err = mtmc("optimize", "model.py", "-q", "--run", "runs/model-h100-001")
    assert code == 2 and "--resume" in err
    facts = json.loads(mtmc("optimize", "model.py", "-q", "--json", "--resume")[1])
    assert facts["run"] == "runs/model-h100-001" and facts["judged"] == 6
    assert (tmp_path / "runs/model-h100-001/steps.jsonl").read_text().startswith(before)


def test_show_prints_the_tree_in_three_forms(world, mtmc):
    mtmc("optimize", "model.py", "-q")
    folder = "runs/model-h100-001"
    _, tree, _ = mtmc("show", folder)
    assert "4.09× predicted Use 3 stages in relu. +5.7 %" in tree
    _, mermaid, _ = mtmc("show", folder, "--format", "mermaid")
    assert mermaid.startswith("flowchart LR") and '-->|"Fuse relu into gemm."| p1' in mermaid
    data = json.loads(mtmc("show", folder, "--format", "json")[1])
    assert data["path"] == [1, 2, 3, 4, 5] and data["answer"] == data["best"] == data["steps"][5]["child"]
    assert mtmc("show", "runs")[0] == 2


def test_gpus_lists_and_shows_figures(mtmc):
    code, out, _ = mtmc("gpus")
    assert code == 0 and "sm_90" in out and "4800" in out and "not reached by Triton" in out
    code, out, _ = mtmc("gpus", "show", "h100")
    assert code == 0 and "memory_bandwidth_gb_s" in out and "3350" in out
    assert mtmc("gpus", "show", "h1000")[0] == 2


def test_the_versions_are_those_that_verdicts_depend_on(mtmc):
    code, out, err = mtmc("--version")
    found = dict(part.split() for part in out.split(", "))
    assert (code, err, list(found)) == (0, "", ["mtmc", "code", "torch", "triton", "python"])
    assert found["code"] == made_with()["code"] and found["torch"] == made_with()["torch"]


def test_help_is_fast_because_it_loads_no_torch_and_names_the_exit_codes():
    loaded = "print([name for name in ('torch', 'triton', 'networkx') if name in sys.modules])"
    script = (
        f"import sys\nfrom mtmc import cli\nsys.argv = ['mtmc', 'optimize', '--help']\ntry: cli.main()\nfinally: {loaded}"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    text = " ".join(done.stdout.split())
    assert "3 no program could be verified" in text and "130 interrupted" in text


def test_the_docs_name_every_option_and_exit_code():
    import typer

    text = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    command = typer.main.get_command(cli.app).commands["optimize"]
    options = {
        name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts) if name[:2] == "--"
    }
    assert len(options) > 15
    assert not {name for name in options if f"`{name}" not in text}
    for code in (0, 1, errors.BAD_INPUT, errors.UNVERIFIED, cli.INTERRUPTED):
        assert f"| {code} |" in text
