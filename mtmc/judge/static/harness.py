"""Rules about work that goes past the judge: other streams, threads, clocks, files and processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mtmc.judge.static.control import under
from mtmc.judge.static.rule import Case, Hit

STREAMS = (
    "torch.cuda.Stream", "torch.cuda.streams.Stream", "torch.cuda.ExternalStream", "torch.Stream",
    "torch.cuda.set_stream", "cupy.cuda.Stream",
)  # fmt: skip
THREADS = (
    "threading.Thread", "threading.Timer", "_thread.start_new_thread", "concurrent.futures", "multiprocessing",
    "torch.multiprocessing", "asyncio", "torch.jit.fork", "torch.jit._fork", "torch.futures", "os.fork", "os.forkpty",
    "joblib", "ray", "subprocess.Popen", "queue.Queue", "multiprocess", "gevent", "greenlet", "trio",
)  # fmt: skip
PROFILERS = (
    "cProfile", "torch.profiler", "torch.autograd.profiler", "torch.cuda._sleep",
    "torch.cuda.utilization", "torch.cuda.temperature", "torch.cuda.clock_rate", "torch.cuda.power_draw", "pynvml",
)  # fmt: skip
SPENDS = ("time.sleep", *PROFILERS)
CLOCKS = (
    "time", "timeit", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.date.today",
    "torch.utils.benchmark", "torch.cuda.nvtx", *PROFILERS,
)  # fmt: skip
OUTSIDE = (
    "socket", "requests", "urllib", "http", "httpx", "aiohttp", "ftplib", "smtplib", "xmlrpc", "websocket", "paramiko",
    "subprocess", "os.system", "os.popen", "os.kill", "os.killpg", "os.abort", "os._exit", "os.execv", "os.execve",
    "os.execvp", "os.execl", "os.execlp", "os.spawnv", "os.spawnl", "os.posix_spawn", "os.remove", "os.unlink",
    "os.rename", "os.replace", "os.rmdir", "os.removedirs", "os.mkdir", "os.chmod", "os.chown", "os.symlink",
    "os.link", "os.truncate", "os.write", "os.open", "os.chdir", "os.mkfifo", "os.utime", "os.setuid", "os.setsid",
    "os.ptrace", "shutil", "signal", "ctypes", "mmap", "pty", "fcntl", "sys.exit", "exit", "quit", "pickle.dump",
    "torch.save", "numpy.save", "numpy.savez", "torch.utils.cpp_extension.os", "psutil", "cffi",
    "sys.stdout.write_through", "builtins.exit", "tempfile.NamedTemporaryFile", "tempfile.mkstemp",
    "torch.hub.download_url_to_file", "multiprocessing.shared_memory", "breakpoint", "faulthandler",
    "resource.setrlimit", "logging.FileHandler",
)  # fmt: skip
WRITERS = frozenset(
    {"write_text", "write_bytes", "unlink", "touch", "rename", "rmdir", "symlink_to", "hardlink_to", "chmod"}
)


def other_stream(case: Case) -> Iterator[Hit]:
    """Work on a stream that the caller's stream does not wait for."""
    for name, function in {"": None, **case.candidate.host}.items():
        nodes = list(ast.walk(function)) if function else [n for s in case.candidate.top for n in ast.walk(s)]
        made = [n for n in nodes if isinstance(n, ast.Call) and under(case.candidate.name(n.func), STREAMS)]
        used = [
            n
            for n in nodes
            if isinstance(n, ast.Call) and case.candidate.name(n.func) in ("torch.cuda.stream", "torch.cuda.StreamContext")
        ]
        where = [n for n in used if not _current(case, n)]
        where += [n for n in made if case.candidate.name(n.func) == "torch.cuda.set_stream" and not _current(case, n)]
        last = max((n.lineno for n in where), default=0)
        if where and not _joined_after(case, nodes, last):
            yield Hit(where[0], f"{ast.unparse(where[0])}: work on another stream, which nobody waits for")
        elif where or (made and not name.endswith("__init__")):
            first = (where or made)[0]
            yield Hit(first, f"{ast.unparse(first)}: another stream, which is waited for", "warn", "possible")
    for source in case.cuda:
        for token in (
            "cudaStreamCreate",
            "cudaStreamCreateWithFlags",
            "cudaStreamCreateWithPriority",
            "getStreamFromPool",
            "cudaLaunchHostFunc",
        ):
            if token in source.tokens:
                yield Hit(source.node, f"the C++ calls {token}")


def _current(case: Case, call: ast.Call) -> bool:
    asked = [v for a in call.args for v in (case.candidate.origin(a.id) if isinstance(a, ast.Name) else [a])]
    inner = [case.candidate.name(n.func) for a in asked for n in ast.walk(a) if isinstance(n, ast.Call)]
    return any(name in ("torch.cuda.current_stream", "torch.cuda.default_stream") for name in inner)


def _joined_after(case: Case, nodes: list[ast.AST], line: int) -> bool:
    """Whether a later statement makes the caller's stream (or the host) wait."""
    for node in nodes:
        if isinstance(node, ast.Call) and node.lineno > line and isinstance(node.func, ast.Attribute):
            name = case.candidate.name(node.func)
            owner = node.func.value
            current = isinstance(owner, ast.Call) and case.candidate.name(owner.func) == "torch.cuda.current_stream"
            named = isinstance(owner, ast.Name) and any(
                isinstance(v, ast.Call) and case.candidate.name(v.func) == "torch.cuda.current_stream"
                for v in case.candidate.origin(owner.id)
            )
            if name == "torch.cuda.synchronize" or node.func.attr == "synchronize":
                return True
            if node.func.attr in ("wait_stream", "wait_event") and (current or named):
                return True
            if node.func.attr == "wait" and not name:
                return True
    return False


def threads(case: Case) -> Iterator[Hit]:
    """Work in another thread or process."""
    for node, name in case.candidate.uses:
        if under(name, THREADS):
            yield Hit(node, f"{name} starts work beside the call")
    for cls in case.candidate.classes.values():
        for base in cls.bases:
            if under(case.candidate.name(base), THREADS):
                yield Hit(cls, f"{cls.name} is a thread")
    for source in case.cuda:
        t = source.tokens
        started = [
            t[i + 2]
            for i in range(len(t) - 2)
            if t[i] == "std" and t[i + 1] == "::" and t[i + 2] in ("thread", "jthread", "async")
        ]
        started += [token for token in ("pthread_create", "fork", "clone") if token in t and token != "clone"]
        for token in started:
            yield Hit(source.node, f"the C++ starts work beside the call ({token})")


def timing(case: Case) -> Iterator[Hit]:
    """Clocks: reading one, sleeping, measuring oneself."""
    for node, name in case.candidate.uses:
        if under(name, SPENDS) or (under(name, CLOCKS) and _clock_decides(case)):
            yield Hit(node, f"{name} tells or spends time, and what is done depends on it")
        elif under(name, CLOCKS):
            yield Hit(node, f"{name} tells the time; fit for choosing a configuration only", "warn", "possible")
        elif under(name, ("triton.testing.do_bench", "torch.cuda.Event")) and _measures(case, node, name):
            yield Hit(node, f"{name} measures; fit for choosing a configuration only", "warn", "possible")
    for source in case.cuda:
        for token in ("cudaEventElapsedTime", "nanosleep", "usleep", "clock_gettime", "gettimeofday", "__nanosleep"):
            if token in source.tokens:
                yield Hit(source.node, f"the C++ calls {token}")


def _clock_decides(case: Case) -> bool:
    """Whether a condition on a clock decides what is computed or returned, not just which configuration is the fastest."""
    for test, (node, labels) in case.flow.tests.items():
        if "clock" in labels:
            waits = any(isinstance(n, ast.While) and n.test is node for n in case.candidate.nodes)
            path = [e.path for e in case.flow.events] + [r.path for r in case.flow.returns]
            if waits or any(number == test for steps in path for number, _ in steps):
                return True
    return any("clock" in labels for labels in case.flow.cells)


def _measures(case: Case, node: ast.AST, name: str) -> bool:
    if name.startswith("triton."):
        return True
    return any(
        call.func is node and any(k.arg == "enable_timing" for k in call.keywords) for call, _ in case.candidate.calls
    )


def outside(case: Case) -> Iterator[Hit]:
    """Network, files, other processes, raw memory."""
    for node, name in case.candidate.uses:
        if under(name, OUTSIDE) and name not in ("signal.SIGINT",):
            yield Hit(node, f"{name} reaches outside the computation")
    for call, name in case.candidate.calls:
        modes = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "mode")]
        writes = any(isinstance(m, ast.Constant) and set(str(m.value)) & set("wax+") for m in modes)
        if name in ("open", "io.open") and writes:
            yield Hit(call, f"{ast.unparse(call)} writes a file")
        elif isinstance(call.func, ast.Attribute) and call.func.attr in WRITERS and (not name or name.startswith("pathlib")):
            yield Hit(call, f"{ast.unparse(call)} changes files")
    for source in case.cuda:
        for token in (
            "ofstream",
            "fwrite",
            "system",
            "popen",
            "kill",
            "exit",
            "_exit",
            "abort",
            "execve",
            "dlopen",
            "socket",
            "mprotect",
        ):
            if (
                any(a == token and b == "(" for a, b in zip(source.tokens, source.tokens[1:], strict=False))
                or token == "ofstream" in source.tokens
            ):
                yield Hit(source.node, f"the C++ calls {token}")
