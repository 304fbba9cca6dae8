"""Problem: the user's model as data, and the functions that load and build it.

Two forms are read: KernelBench's (`class Model`, `get_inputs()`, `get_init_inputs()`), and any module with an entry class
and input specs (`--entry file.py:ClassName --inputs "x=float32[16,1024]"`). A file that cannot be used raises `BadInput`.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import random
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mtmc.errors import BadInput, InfraError
from mtmc.overrides import override

if TYPE_CHECKING:
    import torch

FLOATS = ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
ALIASES = {"fp32": "float32", "float": "float32", "fp64": "float64", "double": "float64", "fp16": "float16"}
ALIASES |= {"half": "float16", "bf16": "bfloat16", "long": "int64", "int": "int32"}


@dataclass(frozen=True)
class InputSpec:
    """One input given on the command line: `name=dtype[d0,d1,…]`, for integers also `name=int64[d0]<100`.

    Floats are drawn from a standard normal, integers from 0 (included) to `high` (excluded).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    high: int = 2


@dataclass(frozen=True)
class Problem:
    """The user's file and how to call it.

    `inputs` is empty when the file has `get_inputs()`. `init` holds the constructor's arguments as literal Python text
    (`"64, bias=False"`), empty when `get_init_inputs()` gives them. `overrides` replaces constants of the file (see
    `mtmc.overrides`): a shrunken variant is the same Problem with other overrides (or other `inputs`). `package` is the
    dotted package of a problem given as `package.module`.
    """

    name: str
    source: str
    path: str
    entry: str = "Model"
    inputs: tuple[InputSpec, ...] = ()
    init: str = ""
    overrides: tuple[tuple[str, Any], ...] = ()
    package: str = ""

    @property
    def hash(self) -> str:
        """Content hash (16 hex digits); the path does not count."""
        text = repr((self.source, self.entry, self.inputs, self.init, self.overrides))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Instance:
    """A built problem: the module as the file leaves it, and one set of positional inputs, both on the target device."""

    model: torch.nn.Module
    inputs: tuple[Any, ...]


def load(path: str | Path, entry: str | None = None, inputs: Sequence[str] = (), init: str = "") -> Problem:
    """Read a model file without running it.

    `path` is a file or an importable `package.module`; `entry` names the class, or both as `file.py:ClassName`. `inputs` are
    specs for `parse_input_spec`; `init` the constructor's literal arguments. Raises BadInput.
    """
    if entry and ":" in entry:
        path, entry = entry.rsplit(":", 1)
    entry = entry or "Model"
    file, package = _locate(str(path))
    source = read_text(file)
    tree = _parse(source, file)
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    if entry not in classes:
        raise BadInput(f"{file} has no class {entry} (classes there: {', '.join(classes) or 'none'}).")
    specs = tuple(parse_input_spec(spec) for spec in inputs)
    if not specs and not any(isinstance(node, ast.FunctionDef) and node.name == "get_inputs" for node in tree.body):
        raise BadInput(f'{file} has no get_inputs() and no input specs were given (--inputs "x=float32[16,1024]").')
    parse_init(init)
    return Problem(file.stem, source, str(file), entry, specs, init, package=package)


def parse_input_spec(text: str) -> InputSpec:
    """`"x=float32[16,1024]"` → InputSpec. Raises BadInput for another form, an unknown dtype or a size of zero."""
    match = re.fullmatch(r"\s*(\w+)\s*=\s*(\w+)\s*\[([\d\s,]*)\]\s*(?:<\s*(\d+)\s*)?", text)
    if not match:
        raise BadInput(f'"{text}" is not an input spec such as x=float32[16,1024] or ids=int64[8,128]<50000.')
    name, dtype, sizes, high = match.groups()
    dtype = ALIASES.get(dtype, dtype)
    if dtype not in FLOATS + INTEGERS:
        raise BadInput(f'"{text}" has an unknown dtype {dtype} (known: {", ".join(FLOATS + INTEGERS)}).')
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    if 0 in shape or high == "0":
        raise BadInput(f'"{text}" describes an empty tensor or range.')
    return InputSpec(name, dtype, shape, int(high or 2))


def parse_init(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Constructor arguments from literal text: `"64, bias=False"` or `"(64, 128)"`. Raises BadInput."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        args = tuple(ast.literal_eval(arg) for arg in call.args)
        kwargs = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise BadInput(f'"{text}" is not a list of literal constructor arguments such as 64, bias=False.') from error
    if len(args) == 1 and not kwargs and isinstance(args[0], tuple):
        args = args[0]
    return args, kwargs


def load_namespace(problem: Problem) -> ModuleType:
    """The user's file, executed once as a module of its own (overrides applied, `__main__` block not run).

    Raises BadInput with the exception's type and message when the file raises.
    """
    with _executed(problem) as module:
        return module


def instantiate(problem: Problem, device: str | torch.device, seed: int = 0) -> Instance:
    """Build the model, then its inputs, directly on `device`, from fixed seeds. Raises BadInput when the file raises.

    On `meta`, what reads values while it is built (`.item()` in a constructor) is built on the CPU and then moved.
    """
    import torch

    target, cpu = torch.device(device), torch.device("cpu")
    places = [(target, target)]
    if target.type == "meta":
        places += [(cpu, target), (cpu, cpu)]
    for model_place, input_place in places:
        try:
            return _build(problem, model_place, input_place, target, seed)
        except BadInput as error:
            if "meta tensor" not in str(error) or input_place.type == "cpu":
                raise
    raise AssertionError("the last place returns or raises")


def construct(problem: Problem, kind: Any, device: str | torch.device = "meta", seed: int = 0) -> torch.nn.Module:
    """An object of `kind` with the arguments, the device and the random numbers that the problem's own class gets.

    Raises what the constructor raises.
    """
    import torch

    with torch.device(device), _executed(problem) as module:
        _seed(seed)
        args, kwargs = _arguments(problem, module)
        made: torch.nn.Module = kind(*args, **kwargs)
        return made


def _build(
    problem: Problem, model_place: torch.device, input_place: torch.device, target: torch.device, seed: int
) -> Instance:
    with model_place, _executed(problem) as module:
        _seed(seed)
        model = _model(problem, module)
        _move_module(model, target)
        with input_place:
            _seed(seed + 1)  # another stream than the weights', so that neither mirrors the other
            return Instance(model, _moved(_inputs(problem, module, model), target))


def _arguments(problem: Problem, module: ModuleType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model's constructor is called with."""
    args, kwargs = parse_init(problem.init)
    if not problem.init and hasattr(module, "get_init_inputs"):
        with user_code("get_init_inputs()"):
            args = tuple(_sequence(module.get_init_inputs(), "get_init_inputs()"))
    return args, kwargs


def _model(problem: Problem, module: ModuleType) -> torch.nn.Module:
    import torch

    args, kwargs = _arguments(problem, module)
    with user_code(f"Building {problem.entry}"):
        model = getattr(module, problem.entry)(*args, **kwargs)
    if not isinstance(model, torch.nn.Module):
        raise BadInput(f"{problem.entry} is not a torch.nn.Module.")
    return model


def _inputs(problem: Problem, module: ModuleType, model: torch.nn.Module) -> tuple[Any, ...]:
    if problem.inputs:
        return _positional(model, {spec.name: _draw(spec) for spec in problem.inputs})
    with user_code("get_inputs()"):
        return _sequence(module.get_inputs(), "get_inputs()")


def _sequence(value: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise BadInput(f"{what} must return a list or a tuple, not {type(value).__name__}.")
    return tuple(value)


def _draw(spec: InputSpec) -> torch.Tensor:
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    if spec.dtype in INTEGERS:
        return torch.randint(0, spec.high, spec.shape).to(dtype)
    return torch.randn(spec.shape, dtype=dtype if dtype.is_complex else None).to(dtype)


def _positional(model: torch.nn.Module, named: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Named inputs in the order of `forward`'s parameters; those left out in between take their defaults."""
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(**named)
    except TypeError as error:
        raise BadInput(f"The inputs {', '.join(named)} do not fit forward{signature}: {error}.") from error
    bound.apply_defaults()
    last = max(list(bound.arguments).index(name) for name in named)
    return tuple(bound.arguments.values())[: last + 1]


def _seed(seed: int) -> None:
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def _moved(value: Any, device: torch.device) -> Any:
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), value)


def _move_module(model: torch.nn.Module, device: torch.device) -> None:
    """Parameters, buffers and tensors kept as plain attributes, in place."""
    model.to(device)
    for module in model.modules():
        for name, value in vars(module).items():
            if not name.startswith("_"):
                vars(module)[name] = _moved(value, device)


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """The boundary around code that the user wrote: whatever it raises becomes `BadInput("what raised …")`.

    Running out of memory is the machine's fault: InfraError. Warnings are hidden.
    """
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except BadInput:
        raise
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise InfraError(f"{what} ran out of memory.") from error
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        first = (str(error).strip() or "no message").splitlines()[0]
        raise BadInput(f"{what} raised {type(error).__name__}: {first}") from error


@contextmanager
def _executed(problem: Problem) -> Iterator[ModuleType]:
    """The executed file; importable, and its folder too, until the block ends."""
    name = f"{problem.package}." * bool(problem.package) + f"mtmc_problem_{problem.hash}"
    module = ModuleType(name)
    module.__file__, module.__package__ = problem.path, problem.package
    folder = str(Path(problem.path).resolve().parent)
    before = set(sys.modules)
    sys.modules[name] = module
    sys.path.insert(0, folder)
    try:
        with user_code(f"Running {problem.path}"):
            code = compile(override(problem.source, problem.overrides), problem.path, "exec", dont_inherit=True)
            exec(code, module.__dict__)
        yield module
    finally:
        sys.path.remove(folder)
        del sys.modules[name]
        _forget(before, Path(folder))


def _forget(before: set[str], folder: Path) -> None:
    """Drop the modules imported from `folder` itself: the next problem's folder may hold others of the same names."""
    for name in set(sys.modules) - before:
        root = name.partition(".")[0]
        if root not in before and ((folder / f"{root}.py").is_file() or (folder / root / "__init__.py").is_file()):
            del sys.modules[name]


def _locate(path: str) -> tuple[Path, str]:
    """File and dotted package of `file.py` or `package.module`."""
    if path.endswith(".py") or Path(path).exists():
        return Path(path), ""
    if not re.fullmatch(r"\w+(\.\w+)*", path):
        raise BadInput(f"There is no file {path}.")
    with user_code(f"Importing {path}"):
        spec = importlib.util.find_spec(path)
    if spec is None or not str(spec.origin).endswith(".py"):
        raise BadInput(f"There is no file and no Python module {path}.")
    return Path(str(spec.origin)), spec.parent or ""


def read_text(file: Path) -> str:
    """A file of the user's as text. Raises BadInput."""
    if not file.is_file():
        raise BadInput(f"There is no file {file}.")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read as UTF-8 text: {error}.") from error


def _parse(source: str, file: Path) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f" in line {line}" if line else ""
        raise BadInput(f"{file} is not valid Python{where}: {getattr(error, 'msg', error)}.") from error
