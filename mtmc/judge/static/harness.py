"""Rules about what a candidate does to the process that judges it: switches, patches, streams, threads, clocks, files, compilers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mtmc.judge.static.candidate import Function
from mtmc.judge.static.control import BUILD_VARIABLES, under
from mtmc.judge.static.rule import Case, Hit

SWITCHES = (
    "torch.set_float32_matmul_precision", "torch.set_default_dtype", "torch.set_default_device", "torch.set_default_tensor_type",
    "torch.use_deterministic_algorithms", "torch.set_deterministic_debug_mode", "torch.set_flush_denormal", "torch.set_num_threads",
    "torch.set_num_interop_threads", "torch.autograd.set_detect_anomaly", "torch.autograd.set_multithreading_enabled",
    "torch.cuda.set_device", "torch.cuda.set_sync_debug_mode", "torch.cuda.set_per_process_memory_fraction", "torch.cuda.init",
    "torch.cuda.memory.set_per_process_memory_fraction", "torch.cuda.memory.change_current_allocator", "torch.set_warn_always",
    "torch.cuda.change_current_allocator", "torch.set_autocast_enabled", "torch.set_autocast_dtype", "torch.set_autocast_gpu_dtype",
    "torch.backends.cuda.enable_flash_sdp", "torch.backends.cuda.enable_math_sdp", "torch.backends.cuda.enable_mem_efficient_sdp",
    "torch.backends.cuda.enable_cudnn_sdp", "torch.backends.cuda.preferred_linalg_library", "torch.backends.cuda.preferred_blas_library",
    "torch.backends.disable_global_flags", "torch.backends.cudnn.set_flags", "torch.cuda.set_rng_state", "torch.cuda.caching_allocator_enable",
    "gc.disable", "gc.freeze", "gc.set_threshold", "sys.setrecursionlimit", "sys.setswitchinterval", "torch.cuda.memory.empty_cache_off",
    "torch._C._set_cublas_allow_tf32", "torch._C._set_cudnn_allow_tf32", "torch._C._jit_set_profiling_executor", "os.putenv", "os.unsetenv",
    "torch.cuda.cudart", "os.sched_setaffinity", "os.nice",
)  # fmt: skip
SEEDS = ("torch.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "random.seed", "numpy.random.seed", "torch.seed")
FLAGS = (
    "torch.backends", "torch._inductor.config", "torch._dynamo.config", "triton.knobs", "torch.autograd.graph", "torch._C", "torch.utils.deterministic",
    "torch.sparse.check_sparse_tensor_invariants", "torch._functorch.config",
)  # fmt: skip
PATCHERS = (
    "unittest.mock", "torch.overrides.TorchFunctionMode", "torch.utils._python_dispatch.TorchDispatchMode", "torch.nn.modules.module.register_module_forward_hook",
    "torch.nn.modules.module.register_module_forward_pre_hook", "torch.library.Library", "torch.library.impl", "torch.library.register_kernel",
    "torch.fx.wrap", "forbiddenfruit", "wrapt", "importlib.reload", "builtins.__dict__", "atexit.register", "torch.overrides.enable_reentrant_dispatch",
    "triton.runtime.driver.set_active", "sys.excepthook", "sys.addaudithook",
)  # fmt: skip
STREAMS = ("torch.cuda.Stream", "torch.cuda.streams.Stream", "torch.cuda.ExternalStream", "torch.Stream", "torch.cuda.set_stream", "cupy.cuda.Stream")
THREADS = (
    "threading.Thread", "threading.Timer", "_thread.start_new_thread", "concurrent.futures", "multiprocessing", "torch.multiprocessing", "asyncio",
    "torch.jit.fork", "torch.jit._fork", "torch.futures", "os.fork", "os.forkpty", "joblib", "ray", "subprocess.Popen", "queue.Queue",
    "multiprocess", "gevent", "greenlet", "trio",
)  # fmt: skip
CLOCKS = (
    "time", "timeit", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.date.today", "torch.utils.benchmark", "torch.profiler",
    "torch.autograd.profiler", "cProfile", "torch.cuda.nvtx", "torch.cuda._sleep", "torch.cuda.utilization", "torch.cuda.temperature",
    "torch.cuda.clock_rate", "torch.cuda.power_draw", "pynvml",
)  # fmt: skip
OUTSIDE = (
    "socket", "requests", "urllib", "http", "httpx", "aiohttp", "ftplib", "smtplib", "xmlrpc", "websocket", "paramiko", "subprocess", "os.system",
    "os.popen", "os.kill", "os.killpg", "os.abort", "os._exit", "os.execv", "os.execve", "os.execvp", "os.execl", "os.execlp", "os.spawnv", "os.spawnl",
    "os.posix_spawn", "os.remove", "os.unlink", "os.rename", "os.replace", "os.rmdir", "os.removedirs", "os.mkdir", "os.chmod", "os.chown",
    "os.symlink", "os.link", "os.truncate", "os.write", "os.open", "os.chdir", "os.mkfifo", "os.utime", "os.setuid", "os.setsid", "os.ptrace",
    "shutil", "signal", "ctypes", "mmap", "pty", "fcntl", "sys.exit", "exit", "quit", "pickle.dump", "torch.save", "numpy.save", "numpy.savez",
    "torch.utils.cpp_extension.os", "psutil", "cffi", "sys.stdout.write_through", "builtins.exit", "tempfile.NamedTemporaryFile", "tempfile.mkstemp",
    "torch.hub.download_url_to_file", "multiprocessing.shared_memory", "breakpoint", "faulthandler", "resource.setrlimit", "logging.FileHandler",
)  # fmt: skip
WRITERS = frozenset({"write_text", "write_bytes", "unlink", "touch", "rename", "rmdir", "symlink_to", "hardlink_to", "chmod"})
COMPILERS = (
    "torch.compile", "torch.jit.script", "torch.jit.trace", "torch.jit.trace_module", "torch.jit.freeze", "torch.jit.optimize_for_inference",
    "torch.jit.load", "torch.jit.ScriptModule", "torch.jit.script_method", "torch._dynamo.optimize", "torch._dynamo.export", "torch.export",
    "torch._inductor", "torch.fx.symbolic_trace", "torch.fx.Tracer", "torch.fx.GraphModule", "torch.compiler.compile", "functorch.compile",
    "torch_tensorrt", "tensorrt", "onnxruntime", "torch.onnx", "thunder", "jax", "torch_xla", "tvm", "torch._export", "torch.aot_compile",
    "torch.fx.experimental", "torch._functorch", "torch._higher_order_ops", "openvino", "deepspeed", "torch._C._jit_pass_inline",
)  # fmt: skip
HARMLESS = ("torch._dynamo.disable", "torch._dynamo.is_compiling", "torch._dynamo.allow_in_graph", "torch._dynamo.graph_break", "torch._dynamo.mark")
INDUCTOR_NAMES = ("xnumel", "ynumel", "rnumel", "r0_numel", "XBLOCK", "YBLOCK", "RBLOCK", "R0_BLOCK", "xoffset", "xindex", "xmask", "rindex", "roffset", "rbase", "rmask")
INDUCTOR_CALLS = frozenset({"assert_size_stride", "empty_strided_cuda", "assert_alignment", "reinterpret_tensor", "grid_type"})
TENSOR_METHODS = frozenset({"__torch_function__", "__torch_dispatch__", "_make_subclass", "_make_wrapper_subclass", "as_subclass"})


def global_flag(case: Case) -> Iterator[Hit]:
    """A switch of the whole process is set: precision, determinism, default types, environment variables."""
    scoped = {id(n) for w in case.candidate.nodes if isinstance(w, ast.With) for i in w.items for n in ast.walk(i)}
    scoped |= {id(n) for f in case.candidate.host.values() for d in f.decorator_list for n in ast.walk(d)}
    for target in _written(case):
        name = _place(case, target)
        if under(name, FLAGS) or name.startswith("torch.backends"):
            yield Hit(target, f"{name} is set for the whole process")
        elif name.startswith(("os.environ", "os.environb")) and not _builds(target):
            yield Hit(target, f"{ast.unparse(target)} is set for the whole process")
    for call, name in case.candidate.calls:
        if under(name, SWITCHES) or name in ("os.environ.update", "os.environ.setdefault", "os.environ.pop", "os.environ.clear"):
            if not (name.startswith("os.environ") and _builds(call)):
                yield Hit(call, f"{name} changes the whole process")
        elif name == "torch.set_grad_enabled" and id(call) not in scoped:
            yield Hit(call, f"{name} changes the whole process", "warn")
        elif under(name, SEEDS):
            yield Hit(call, f"{name} resets the random numbers of the whole process", "warn")
        elif name in ("triton.set_allocator", "triton.runtime._allocation.set_allocator"):
            yield Hit(call, "triton.set_allocator is global; descriptors made on the host need none", "warn", "possible")


def _builds(node: ast.AST) -> bool:
    """Whether only variables that compilers read are touched."""
    words = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return bool(words) and words[0] in BUILD_VARIABLES


def _written(case: Case) -> Iterator[ast.expr]:
    """Targets of assignments and deletions, and of `setattr` and `delattr` as if they were written out."""
    for node in case.candidate.nodes:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node
    for call, name in case.candidate.calls:
        if name in ("setattr", "delattr", "object.__setattr__", "type.__setattr__") and len(call.args) > 1:
            asked = call.args[1].value if isinstance(call.args[1], ast.Constant) else "?"
            yield ast.copy_location(ast.Attribute(call.args[0], str(asked), ast.Store()), call)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("update", "__setitem__", "setdefault"):
            owner = call.func.value
            if isinstance(owner, ast.Attribute) and owner.attr == "__dict__":
                yield ast.copy_location(ast.Attribute(owner.value, "__dict__", ast.Store()), call)
            elif isinstance(owner, ast.Call) and case.candidate.name(owner.func) in ("globals", "vars"):
                yield ast.copy_location(ast.Subscript(owner, ast.Constant("?"), ast.Store()), call)


def _place(case: Case, target: ast.expr) -> str:
    """Full name of the module or class whose attribute or item is written; empty for the candidate's own things."""
    if isinstance(target, ast.Subscript):
        return case.candidate.name(target.value)
    return case.candidate.name(target)


def monkey_patch(case: Case) -> Iterator[Hit]:
    """Something of PyTorch's, of Python's, of the reference's or of a live object's class is replaced."""
    for target in _written(case):
        name = _place(case, target)
        if not name or under(name, FLAGS) or name.startswith(("torch.backends", "os.environ", "self", "?")):
            yield from _own_patch(case, target)
        elif not isinstance(target, ast.Subscript) or name in ("sys.modules", "builtins") or name.endswith("__dict__"):
            yield Hit(target, f"{ast.unparse(target)} replaces a part of {name.split('.')[0]}")
    for node, name in case.candidate.uses:
        if under(name, PATCHERS):
            yield Hit(node, f"{name} changes what others' calls do")
    for call, _ in case.candidate.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("register_forward_hook", "register_forward_pre_hook"):
            yield Hit(call, f"{ast.unparse(call.func)} replaces what forward gets or gives", certainty="likely")
        if isinstance(call.func, ast.Attribute) and call.func.attr == "impl" and call.args and isinstance(call.args[0], ast.Constant):
            yield Hit(call, f"{ast.unparse(call.func)} replaces the operator {call.args[0].value}")


def _own_patch(case: Case, target: ast.expr) -> Iterator[Hit]:
    if isinstance(target, ast.Attribute):
        owner = target.value
        reference = case.candidate.problem.entry if case.candidate.problem else "Model"
        if target.attr in ("__class__", "__code__", "__defaults__", "__globals__", "__closure__"):
            yield Hit(target, f"{ast.unparse(target)} turns a live object into another")
        elif isinstance(owner, ast.Name) and owner.id == reference and owner.id in case.candidate.classes:
            yield Hit(target, f"{ast.unparse(target)} changes the reference")
        elif isinstance(owner, ast.Call) and case.candidate.name(owner.func) == "type":
            yield Hit(target, f"{ast.unparse(target)} changes the class of a live object", certainty="likely")
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Call):
        if case.candidate.name(target.value.func) in ("globals", "vars"):
            yield Hit(target, f"{ast.unparse(target)} rebinds a name at run time", certainty="likely")
    if isinstance(target, (ast.Attribute, ast.Subscript)):
        attributes = {n.attr for n in ast.walk(target) if isinstance(n, ast.Attribute)}
        if attributes & {"f_globals", "f_locals", "__globals__"}:
            yield Hit(target, f"{ast.unparse(target)} writes into another function's names")


def other_stream(case: Case) -> Iterator[Hit]:
    """Work on a stream that the caller's stream does not wait for."""
    for name, function in {"": None, **case.candidate.host}.items():
        nodes = list(ast.walk(function)) if function else [n for s in case.candidate.top for n in ast.walk(s)]
        made = [n for n in nodes if isinstance(n, ast.Call) and under(case.candidate.name(n.func), STREAMS)]
        used = [n for n in nodes if isinstance(n, ast.Call) and case.candidate.name(n.func) in ("torch.cuda.stream", "torch.cuda.StreamContext")]
        where = [n for n in used if not _current(case, n)]
        last = max((n.lineno for n in where or made), default=0)
        if not (where or made) or (made and not where and function is not None and name.endswith("__init__")):
            continue
        first = (where or made)[0]
        if _joined_after(case, nodes, last):
            yield Hit(first, f"{ast.unparse(first)}: work on another stream, which is waited for", "warn", "possible")
        elif function is not None or where:
            yield Hit(first, f"{ast.unparse(first)}: work on another stream, which nobody waits for")
    for source in case.cuda:
        for token in ("cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority", "getStreamFromPool", "cudaLaunchHostFunc"):
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
                isinstance(v, ast.Call) and case.candidate.name(v.func) == "torch.cuda.current_stream" for v in case.candidate.origin(owner.id)
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
        started = [t[i + 2] for i in range(len(t) - 2) if t[i] == "std" and t[i + 1] == "::" and t[i + 2] in ("thread", "jthread", "async")]
        started += [token for token in ("pthread_create", "fork", "clone") if token in t and token != "clone"]
        for token in started:
            yield Hit(source.node, f"the C++ starts work beside the call ({token})")


def timing(case: Case) -> Iterator[Hit]:
    """Clocks: reading one, sleeping, measuring oneself."""
    for node, name in case.candidate.uses:
        if under(name, CLOCKS):
            yield Hit(node, f"{name} tells or spends time")
        elif under(name, ("triton.testing.do_bench", "torch.cuda.Event")) and _measures(case, node, name):
            yield Hit(node, f"{name} measures; fit for choosing a configuration only", "warn", "possible")
    for source in case.cuda:
        for token in ("cudaEventElapsedTime", "nanosleep", "usleep", "clock_gettime", "gettimeofday", "__nanosleep"):
            if token in source.tokens:
                yield Hit(source.node, f"the C++ calls {token}")


def _measures(case: Case, node: ast.AST, name: str) -> bool:
    if name.startswith("triton."):
        return True
    return any(call.func is node and any(k.arg == "enable_timing" for k in call.keywords) for call, _ in case.candidate.calls)


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
        for token in ("ofstream", "fwrite", "system", "popen", "kill", "exit", "_exit", "abort", "execve", "dlopen", "socket", "mprotect"):
            if any(a == token and b == "(" for a, b in zip(source.tokens, source.tokens[1:], strict=False)) or token == "ofstream" in source.tokens:
                yield Hit(source.node, f"the C++ calls {token}")


def torch_compile(case: Case) -> Iterator[Hit]:
    """Another compiler does the work."""
    for node, name in case.candidate.uses:
        if under(name, COMPILERS) and not name.startswith(HARMLESS):
            yield Hit(node, f"{name} hands the work to another compiler")
    for call, name in case.candidate.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and not name:
            yield Hit(call, f"{ast.unparse(call.func)} hands the work to another compiler", certainty="likely")


def inductor_code(case: Case) -> Iterator[Hit]:
    """A kernel that torch.compile wrote: Inductor's names for sizes, blocks, pointers and values, or its helpers."""
    for node in case.candidate.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch._inductor"):
            yield Hit(node, f"{node.module} belongs to Inductor's generated code")
        elif isinstance(node, ast.Import) and any(a.name.startswith("torch._inductor") for a in node.names):
            yield Hit(node, "torch._inductor belongs to Inductor's generated code")
        elif isinstance(node, ast.Name) and node.id in INDUCTOR_CALLS:
            yield Hit(node, f"{node.id} belongs to Inductor's generated code", certainty="likely")
    for name, function in case.candidate.device.items():
        signs = _inductor_signs(function)
        if len(signs) >= 3 or name.startswith(("triton_poi_", "triton_red_", "triton_per_", "triton_tem_")):
            told = ", ".join(sorted(signs)) or name
            yield Hit(function, f"{name} is written as Inductor writes kernels ({told})", certainty="likely")


def _inductor_signs(function: Function) -> set[str]:
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} | {a.arg for a in function.args.args}
    signs = {name for name in INDUCTOR_NAMES if name in names}
    numbered = {"tmp": 3, "in_ptr": 1, "out_ptr": 1, "in_out_ptr": 1}
    for stem, least in numbered.items():
        found = [n for n in names if n.startswith(stem) and n.removeprefix(stem).isdigit()]
        if len(found) >= least:
            signs.add(f"{stem}0")
    telling = {"xnumel", "ynumel", "rnumel", "r0_numel", "xindex", "xmask", "rindex", "rmask", "tmp0"}
    return signs if signs & telling and "tmp0" in signs else set()


def lazy_output(case: Case) -> Iterator[Hit]:
    """A class that poses as a tensor and can put the work off until nobody measures."""
    used = {n.id for n in case.candidate.nodes if isinstance(n, ast.Name)}
    for cls in case.candidate.classes.values():
        bases = [case.candidate.name(base) for base in cls.bases]
        if any(base in ("torch.Tensor", "torch._C.TensorBase", "torch._C._TensorBase", "torch.nn.Parameter") for base in bases) and cls.name in used:
            yield Hit(cls, f"{cls.name} poses as a tensor")
        for node in cls.body:
            if isinstance(node, Function) and node.name in TENSOR_METHODS and cls.name in used:
                yield Hit(node, f"{cls.name}.{node.name} takes over what is done to it")
    for node in case.candidate.nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("_make_subclass", "_make_wrapper_subclass", "as_subclass"):
            yield Hit(node, f"{ast.unparse(node)} makes a tensor of another class")
