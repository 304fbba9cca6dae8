"""Whatever a candidate does to its worker, the run goes on and the next honest candidate's verdict is right."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import judge_samples as samples
import pytest
import sandbox_samples as hostile
from processes import environment

import mtmc.judge
from mtmc.judge import folders, landlock, mounts, processes, sandbox
from mtmc.judge.executor import GIB, Limits, LocalProcesses
from mtmc.judge.jobs import InterpretJob
from mtmc.verdict import Accuracy, Rejected, RuntimeFault, Timeout, Verdict, Wrong

FAST = Limits(
    workers={"compile": 1, "interpret": 1, "gpu": 1}, memory_bytes=dict.fromkeys(("compile", "interpret", "gpu"), GIB)
)
HOLDS = sandbox.report()
OWN_USER = any("unprivileged user" in line for line in HOLDS)
LANDLOCK = landlock.version()
confined = pytest.mark.skipif(not (OWN_USER or LANDLOCK), reason=f"nothing confines files here: {HOLDS}")


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcesses]:
    with LocalProcesses(tmp_path_factory.mktemp("cache"), FAST) as running:
        yield running


def judged(executor: LocalProcesses, source: str, seconds: float = 60) -> Verdict | Accuracy:
    found = executor.submit(InterpretJob(problem=samples.problem(), source=source, seconds=seconds)).result()
    assert isinstance(found, (Verdict, Accuracy))
    return found


def next_is_right(executor: LocalProcesses) -> None:
    """An honest candidate passes and a wrong one fails, by their values."""
    assert isinstance(judged(executor, samples.CANDIDATE), Accuracy)
    assert getattr(judged(executor, samples.WRONG), "check", None) == "values"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (hostile.OS_EXIT, "exit code 0"),
        (hostile.KILLS_ITSELF, "SIGKILL"),
        (hostile.SEGFAULT, "SIGSEGV"),
        pytest.param(hostile.KILLS_GROUP, "SIGKILL", marks=pytest.mark.slow),
        (hostile.FORK_BOMB, "bomb|processes"),
        pytest.param(hostile.TREE_OF_FORKS, "processes", marks=pytest.mark.slow),
        (hostile.GREEDY, "GiB of host memory"),
        pytest.param(hostile.GREEDY_CHILD, "GiB of host memory", marks=pytest.mark.slow),
        (hostile.MANY_FILES, "files"),
        (hostile.FORGES, "protocol|exit code 0"),
        pytest.param(hostile.STARVES, "exit code 0", marks=pytest.mark.slow),
        (hostile.ENDLESS_REPLY, "protocol|has ended|SIGKILL|exit code"),
    ],
)
def test_a_fault_costs_one_worker(executor: LocalProcesses, source: str, words: str) -> None:
    found = judged(executor, source, seconds=60)
    assert isinstance(found, RuntimeFault), found
    assert any(word in found.message for word in words.split("|")), found.message
    next_is_right(executor)


@pytest.mark.parametrize("source", [hostile.HANGS, hostile.IGNORES_SIGNALS])
def test_a_hang_ends_at_the_deadline(executor: LocalProcesses, source: str) -> None:
    began = time.monotonic()
    assert judged(executor, source, seconds=1.5) == Timeout("verify", 1.5)
    assert time.monotonic() - began < 30
    next_is_right(executor)


def test_the_parent_and_everybody_else_are_out_of_reach(executor: LocalProcesses) -> None:
    found = judged(executor, hostile.KILLS_PARENT)
    if OWN_USER or LANDLOCK >= landlock.SCOPES_FROM:
        assert isinstance(found, Accuracy)  # refused, and nothing else was done
    next_is_right(executor)
    bystander = subprocess.Popen(["sleep", "100"])
    try:
        if OWN_USER or LANDLOCK >= landlock.SCOPES_FROM:
            judged(executor, hostile.KILLS_EVERYBODY)
            assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    next_is_right(executor)


def test_what_is_left_behind_is_killed(executor: LocalProcesses) -> None:
    assert isinstance(judged(executor, hostile.DAEMON), Accuracy)
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert b"sleep\x004321\x00" not in commands
    next_is_right(executor)


@confined
@pytest.mark.parametrize("where", ["judge", "house", "log", "cache", "tests"])
def test_the_judges_files_cannot_be_written(executor: LocalProcesses, where: str, tmp_path: Path) -> None:
    cache = Path(executor._cache)
    (cache / "reference").mkdir(exist_ok=True)
    target = {
        "judge": Path(mtmc.judge.__file__).parent / "planted.py",
        "house": Path(executor._folder.name) / "planted",
        "log": Path(executor._folder.name) / "interpret-0" / "log",
        "cache": cache / "reference" / "planted",
        "tests": Path(__file__).parent / "planted.py",
    }[where]
    found = judged(executor, hostile.writes(str(target)))
    assert isinstance(found, RuntimeFault) and "PermissionError" in found.message, found
    assert not target.name.startswith("planted") or not target.exists()
    next_is_right(executor)


@confined
def test_other_candidates_leave_nothing_to_read(executor: LocalProcesses) -> None:
    house = Path(executor._folder.name)
    secret = house / "interpret-0" / "other"
    secret.mkdir(mode=0o700, exist_ok=True)
    (secret / "candidate.py").write_text("secret")
    found = judged(executor, hostile.tells(f"open({str(secret / 'candidate.py')!r}).read()"))
    assert isinstance(found, RuntimeFault) and "PermissionError" in found.message, found
    sources = hostile.tells("sorted(glob.glob('../**/candidate_*.py', recursive=True))")
    assert "value []" in getattr(judged(executor, sources), "message", "")


def test_the_environment_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "do not tell")
    with LocalProcesses(limits=FAST) as running:
        own = judged(running, hostile.tells("sorted(k for k in os.environ if 'SECRET' in k)"))
        assert isinstance(own, RuntimeFault) and "value []" in own.message
        if OWN_USER or LANDLOCK:  # neither may it look into the judge's process
            parent = judged(running, hostile.tells(f"open('/proc/{os.getpid()}/environ').read()"))
            assert isinstance(parent, RuntimeFault) and "PermissionError" in parent.message, parent


def test_there_is_no_network(executor: LocalProcesses) -> None:
    if not any("no network" in line or "cannot open TCP" in line for line in HOLDS):
        pytest.skip(f"this kernel allows no confinement of the network: {HOLDS}")
    code = "socket.create_connection(('127.0.0.1', PORT), 2)"
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        found = judged(executor, hostile.tells(code.replace("PORT", str(server.getsockname()[1]))))
    assert isinstance(found, RuntimeFault) and "value" not in found.message, found


@pytest.mark.parametrize("patch", hostile.PATCHES)
def test_a_judge_patched_in_the_candidates_process_decides_nothing(executor: LocalProcesses, patch: str) -> None:
    """Wrong values stay wrong: another process compares them. Nor is any later candidate judged by what was patched."""
    wrong = hostile.doing(patch).replace("x * scale", "x * scale * 1.001", 2)
    found = judged(executor, wrong)
    assert isinstance(found, (Wrong, Rejected, RuntimeFault)), found
    next_is_right(executor)


@pytest.mark.slow
@pytest.mark.parametrize("source", [hostile.FORGES, hostile.STARVES, hostile.ENDLESS_REPLY])
def test_bytes_written_blindly_are_no_reply(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with LocalProcesses(limits=FAST) as running:
        honest = hostile.Alone(problem=samples.problem(), source=samples.CANDIDATE)
        assert isinstance(running.submit(honest).result(), Accuracy)
        found = running.submit(replace(honest, source=source, seconds=20)).result()
        assert isinstance(found, RuntimeFault) and "process" in found.message or "reply" in found.message, found
        assert isinstance(running.submit(honest).result(), Accuracy)


def test_a_cache_serves_one_candidate(executor: LocalProcesses) -> None:
    seen = []
    for number in range(2):
        found = judged(
            executor, hostile.tells(f"({number}, os.environ['TRITON_CACHE_DIR'], os.environ['TORCHINDUCTOR_CACHE_DIR'])")
        )
        assert isinstance(found, RuntimeFault)
        seen.append(found.message.split("', '")[0].split("'")[1])
    assert seen[0] != seen[1]


def test_what_holds_is_said(executor: LocalProcesses) -> None:
    judged(executor, samples.CANDIDATE)
    assert len(executor.confinement()) == len(HOLDS) >= 4
    for plan in (sandbox.Plan(), sandbox.Plan(61500, network="none", landlock=7), sandbox.Plan(None, "why", "no TCP", 4)):
        text = " ".join(sandbox.sentences(plan))
        assert ("NOT" in text or "within candidates' reach" in text) == (plan.network != "none")


ORDINARY = """
import os, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from mtmc.judge import mounts, sandbox
mounts.open_up(mounts.openings([*sandbox._python(), Path({folder!r})]))
sandbox.become(64321)
os.environ["TMPDIR"] = os.environ["HOME"] = {home!r}
if __name__ == "__main__":
    import judge_samples as samples, sandbox_samples as hostile
    from mtmc.judge.executor import LocalProcesses
    from mtmc.judge.jobs import InterpretJob
    import test_sandbox as t
    with LocalProcesses(limits=t.FAST) as running:
        for source in (hostile.KILLS_PARENT, hostile.OS_EXIT, hostile.DAEMON, hostile.writes({home!r} + "/planted")):
            print(t.judged(running, source), flush=True)
            t.next_is_right(running)
        print(*running.confinement(), sep="\\n")
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may enter, as pytest's own is not."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.slow
@pytest.mark.skipif(not OWN_USER, reason="only root can become an ordinary user")
def test_the_same_as_an_ordinary_user(open_folder: Path) -> None:
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, 64321, 64321)
    script = open_folder / "ordinary.py"
    script.write_text(ORDINARY.format(folder=str(Path(__file__).parent), home=str(home)))
    script.chmod(0o644)
    output = open_folder / "output"
    with output.open("w") as file:
        code = subprocess.run(
            [sys.executable, str(script)],
            stdout=file,
            stderr=file,
            env=environment(PYTHONDONTWRITEBYTECODE="1"),
            timeout=150,
        ).returncode
    text = output.read_text()
    assert code == 0, text[-3000:]
    lines = text.splitlines()
    assert "exit code 0" in lines[1] and lines[2].startswith("Accuracy")
    assert "rights of the user who started the judge" in text
    if LANDLOCK:
        assert "PermissionError" in lines[3] and not (home / "planted").exists()
    assert not [owner for owner in sandbox._owners() if owner == 64321]


def test_folders_are_looked_into_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "deep"
    where = deep
    for _ in range(300):
        where = where / "d"
    subprocess.run(["mkdir", "-p", str(where)], check=True)
    (deep / "outside").symlink_to(Path(__file__))
    assert folders.too_full(deep) == ""
    monkeypatch.setattr(folders, "MOST_FILES", 100)
    assert "files" in folders.too_full(deep)
    folders.remove(deep)
    assert not deep.exists() and Path(__file__).exists()
    log = tmp_path / "log"
    log.write_bytes(b"x" * 100_000 + b"\n the last \n\n")
    assert folders.last_words(log) == "the last"


def test_descendants_are_found_and_ended() -> None:
    script = "import os, subprocess, sys, time; subprocess.Popen(['sleep', '50'], start_new_session=True); time.sleep(50)"
    child = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 20
    while len(processes.descendants(child.pid)) < 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    (grandchild,) = processes.descendants(child.pid)
    assert processes.resident_bytes(child.pid) >= processes.proportional_bytes(child.pid) > 0
    assert processes.memory_over([child.pid], 1) and not processes.memory_over([child.pid], GIB)
    for pid in (grandchild, child.pid):
        os.kill(pid, 9)
    child.wait()


def test_closed_folders_are_found(open_folder: Path) -> None:
    closed = open_folder / "closed"
    (closed / "open" / "deep").mkdir(parents=True)
    if above := mounts.closed_above(closed):
        pytest.skip(f"{above} is closed itself")
    closed.chmod(0o700)
    found = mounts.openings([closed / "open", closed / "open" / "deep", closed / "missing", open_folder])
    assert found == {closed: (closed / "open",)}
