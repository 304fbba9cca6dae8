"""Rules about what a candidate changes in the process that judges it: switches, patched names, tensors that are none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mtmc.judge.static.control import BUILD_VARIABLES, under
from mtmc.judge.static.rule import Case, Hit
from mtmc.judge.static.trees import Function

SWITCHES = (
    "torch.set_float32_matmul_precision", "torch.set_default_dtype", "torch.set_default_device",
    "torch.set_default_tensor_type", "torch.use_deterministic_algorithms", "torch.set_deterministic_debug_mode",
    "torch.set_flush_denormal", "torch.set_num_threads", "torch.set_num_interop_threads",
    "torch.autograd.set_detect_anomaly", "torch.autograd.set_multithreading_enabled", "torch.cuda.set_device",
    "torch.cuda.set_sync_debug_mode", "torch.cuda.set_per_process_memory_fraction", "torch.cuda.init",
    "torch.cuda.memory.set_per_process_memory_fraction", "torch.cuda.memory.change_current_allocator",
    "torch.set_warn_always", "torch.cuda.change_current_allocator", "torch.set_autocast_enabled",
    "torch.set_autocast_dtype", "torch.set_autocast_gpu_dtype", "torch.backends.cuda.enable_flash_sdp",
    "torch.backends.cuda.enable_math_sdp", "torch.backends.cuda.enable_mem_efficient_sdp",
    "torch.backends.cuda.enable_cudnn_sdp", "torch.backends.cuda.preferred_linalg_library",
    "torch.backends.cuda.preferred_blas_library", "torch.backends.disable_global_flags",
    "torch.backends.cudnn.set_flags", "torch.cuda.set_rng_state", "torch.cuda.caching_allocator_enable", "gc.disable",
    "gc.freeze", "gc.set_threshold", "sys.setrecursionlimit", "sys.setswitchinterval",
    "torch.cuda.memory.empty_cache_off", "torch._C._set_cublas_allow_tf32", "torch._C._set_cudnn_allow_tf32",
    "torch._C._jit_set_profiling_executor", "os.putenv", "os.unsetenv", "torch.cuda.cudart", "os.sched_setaffinity",
    "os.nice",
)  # fmt: skip
SEEDS = (
    "torch.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "random.seed", "numpy.random.seed",
    "torch.seed",
)  # fmt: skip
FLAGS = (
    "torch.backends", "torch._inductor.config", "torch._dynamo.config", "triton.knobs", "torch.autograd.graph",
    "torch._C", "torch.utils.deterministic", "torch.sparse.check_sparse_tensor_invariants", "torch._functorch.config",
)  # fmt: skip
PATCHERS = (
    "unittest.mock", "torch.overrides.TorchFunctionMode", "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.nn.modules.module.register_module_forward_hook", "torch.nn.modules.module.register_module_forward_pre_hook",
    "torch.fx.wrap", "forbiddenfruit", "wrapt", "importlib.reload", "builtins.__dict__", "atexit.register",
    "torch.overrides.enable_reentrant_dispatch", "triton.runtime.driver.set_active", "sys.excepthook",
    "sys.addaudithook",
)  # fmt: skip
TENSOR_METHODS = frozenset(
    {"__torch_function__", "__torch_dispatch__", "_make_subclass", "_make_wrapper_subclass", "as_subclass"}
)


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
        if under(name, SWITCHES) or name in (
            "os.environ.update",
            "os.environ.setdefault",
            "os.environ.pop",
            "os.environ.clear",
        ):
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
    for call, name in case.candidate.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("register_forward_hook", "register_forward_pre_hook"):
            yield Hit(call, f"{ast.unparse(call.func)} replaces what forward gets or gives", certainty="likely")
        if name.startswith("torch.library.") and (taken := _taken(call)):
            yield Hit(call, f"{ast.unparse(call.func)} replaces operators of {taken}")


def _taken(call: ast.Call) -> str:
    """PyTorch's own namespace that a registration names: `aten`, `aten::relu`, …"""
    words = [a.value.split(":")[0] for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return next((word for word in words if word in ("aten", "prims", "prim", "quantized", "torchvision")), "")


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


def lazy_output(case: Case) -> Iterator[Hit]:
    """A class that poses as a tensor and can put the work off until nobody measures."""
    used = {n.id for n in case.candidate.nodes if isinstance(n, ast.Name)}
    for cls in case.candidate.classes.values():
        bases = [case.candidate.name(base) for base in cls.bases]
        if (
            any(
                base in ("torch.Tensor", "torch._C.TensorBase", "torch._C._TensorBase", "torch.nn.Parameter")
                for base in bases
            )
            and cls.name in used
        ):
            yield Hit(cls, f"{cls.name} poses as a tensor")
        for method in cls.body:
            if isinstance(method, Function) and method.name in TENSOR_METHODS and cls.name in used:
                yield Hit(method, f"{cls.name}.{method.name} takes over what is done to it")
    for node in case.candidate.nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("_make_subclass", "_make_wrapper_subclass", "as_subclass"):
            yield Hit(node, f"{ast.unparse(node)} makes a tensor of another class")
