"""Hostile candidates: the good one of `judge_samples`, with something done before its kernel is launched."""

from dataclasses import dataclass

import judge_samples as samples

from mtmc.judge.jobs import InterpretJob


def doing(code: str, at: str = "        relu = launch_relu(x, p_scale)") -> str:
    """The good candidate, which runs `code` (dedented by nothing, flush left) at every call first."""
    indented = "\n".join("        " + line for line in code.strip().splitlines())
    return samples.changed((at, f"{indented}\n{at}"))


HANGS = doing("import time\nwhile True:\n    time.sleep(1)")
IGNORES_SIGNALS = doing(
    "import signal, time\nfor s in (1, 2, 3, 13, 15):\n    signal.signal(s, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)"
)
OS_EXIT = doing("import os\nos._exit(0)")
KILLS_ITSELF = doing("import os\nos.kill(os.getpid(), 9)")
SEGFAULT = doing("import ctypes\nctypes.string_at(0)")
# Signals to parent, group and everybody; a refusal is no fault, so what comes after decides.
KILLS_PARENT = doing(
    "import os\n"
    "for target in (os.getppid(), 1):\n"
    "    try:\n        os.kill(target, 9)\n    except (PermissionError, ProcessLookupError):\n        pass\n"
)
KILLS_GROUP = doing("import os\nos.killpg(0, 9)")
KILLS_EVERYBODY = doing("import os\nos.kill(-1, 9)")
FORK_BOMB = doing(
    "import os, time\n"
    "for _ in range(5000):\n"
    "    try:\n        child = os.fork()\n    except OSError:\n        break\n"
    "    if child == 0:\n        time.sleep(300)\n        os._exit(0)\n"
    "raise RuntimeError('the bomb has gone off')"
)
TREE_OF_FORKS = doing(
    "import os, time\n"
    "for _ in range(7):\n"
    "    try:\n        os.fork()\n    except OSError:\n        pass\n"
    "os.setsid() if os.getpgid(0) != os.getpid() else None\n"
    "time.sleep(300)"
)
EATS = "kept = []\nwhile True:\n    kept.append(bytearray(b'x') * (64 << 20))"
GREEDY = doing(EATS)
GREEDY_CHILD = doing(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {EATS!r}])")
DAEMON = doing(
    "import os, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.environ['MARK'] = 'left behind'\n"
    "        os.execvp('sleep', ['sleep', '4321'])\n"
    "    os._exit(0)\n"
    "time.sleep(0.3)"
)
MANY_FILES = doing("for number in range(200000):\n    open(f'file{number}', 'w').close()")
# Raw bytes into every open pipe, as a worker writes them, then the end.
FORGES = doing(
    "import os, pickle, struct\n"
    "from mtmc.verdict import Accuracy\n"
    "reply = pickle.dumps(Accuracy(0.0, 1.0, ('forged',)))\n"
    "for nonce in (b'', bytes(16) + b'\\0'):\n"
    "    message = struct.pack('>Q', len(nonce + reply)) + nonce + reply\n"
    "    for fd in range(3, 256):\n"
    "        try:\n            os.write(fd, message)\n        except OSError:\n            pass\n"
    "os._exit(0)"
)
TO_EVERY_PIPE = """
import os, time
for fd in range(3, 256):
    try:
        os.write(fd, {data!r})
    except OSError:
        pass
"""
STARVES = doing(TO_EVERY_PIPE.format(data=b"\0" * 7) + "os._exit(0)")
ENDLESS_REPLY = doing(TO_EVERY_PIPE.format(data=b"\xff" * 64) + "time.sleep(60)")


@dataclass(frozen=True, kw_only=True)
class Alone(InterpretJob):
    """A verification whose worker holds the candidate itself, as timing and the dynamic checks do."""

    paired = False


def writes(path: str) -> str:
    """Tries to write a file; raises what the attempt raises."""
    return doing(f"open({path!r}, 'w').write('x = 1')")


def tells(expression: str) -> str:
    """Fails with the value of an expression as its message."""
    return doing(f"import os, sys, pathlib, glob, socket\nraise RuntimeError('value ' + repr({expression}))")


PATCHES = (
    "import mtmc.judge.accuracy as a\na.Errors.failure = lambda *_: None",
    "import mtmc.judge.verify as v\nfrom mtmc.verdict import Accuracy\n"
    "v.Verifier._one = lambda *_: (Accuracy(0.0, 0.0), '')",
    "import mtmc.judge.isolated as i\nfrom mtmc.verdict import Accuracy\n"
    "i.Host._answer = lambda self, *_: self.post.send(i.pickle.dumps(('close', Accuracy(0.0, 1.0))), [])",
    "import mtmc.judge.isolated as i\ni._described = lambda seen: ({'form': 'leaf', 'leaves': []}, [])",
)
