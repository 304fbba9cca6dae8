"""Calls of PyTorch, builtins and other modules in the dataflow, by the tables of `operators`."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mtmc.judge.static import operators as ops
from mtmc.judge.static.calls import CACHES, Arguments, Calls
from mtmc.judge.static.candidate import BUILDERS, JIT, OPERATORS
from mtmc.judge.static.expressions import DTYPES, IDENTITY
from mtmc.judge.static.memory import EMPTY, MISSING, PLAIN, Cells, Labels, Name, Spec, is_data

GRAPHS = ("torch.cuda.CUDAGraph", "torch.cuda.graphs.CUDAGraph")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "int": int, "float": float, "bool": bool, "abs": abs, "max": max, "min": min, "str": str,
    "tuple": tuple, "list": tuple, "range": range, "sum": sum, "round": round, "math.ceil": math.ceil,
    "math.floor": math.floor, "math.prod": math.prod, "math.sqrt": math.sqrt, "torch.Size": tuple, "all": all, "any": any,
    "triton.cdiv": lambda a, b: -(-a // b), "triton.next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length(),
}  # fmt: skip
ORIGINS = {  # label of a plain value → calls that give it
    "env": ("os.environ", "os.getenv"),
    "clock": ("time.", "datetime.", "timeit."),
    "random": ("random.", "secrets.", "uuid.", "numpy.random.", "os.urandom"),
    "probe": ("torch.cuda.is_current_stream_capturing", "torch.cuda.memory_allocated", "torch.cuda.utilization"),
    "count": ("itertools.count",),
}
NUMBERS = ("int", "float", "bool", "any", "all", "sum", "max", "min", "abs", "round")
THROUGH = ("itertools.", "collections.", "weakref.ref", "weakref.proxy")
TYPES = ("torch.float", "torch.compile")  # they begin with the name of something plain
HIDDEN = ("torch._C._nn.", "torch._C._VariableFunctions.", "torch._C.TensorBase.", "torch._C._TensorBase.")  # operators
DICTIONARIES = (
    "dict", "collections.OrderedDict", "collections.defaultdict", "weakref.WeakKeyDictionary",
    "weakref.WeakValueDictionary",
)  # fmt: skip
KNOWN = {"torch.cuda.is_available": True, "torch.jit.is_scripting": False, "torch.jit.is_tracing": False}


def computed(name: str, values: list[Any]) -> Any:
    """Value of a small pure function of known values; MISSING for any other call."""
    function = FUNCTIONS.get(name)
    long = any(isinstance(v, range) and len(v) > 10_000 for v in values) and name != "len"
    if function is None or long or MISSING in values or any(isinstance(v, Name) for v in values):
        return KNOWN.get(name, MISSING)
    try:
        return function(*values)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return MISSING


def random_spec(verb: str, arguments: list[Any], dtype: Any) -> Spec | None:
    """Shape and dtype of a tensor made by `torch.randn(4, 8)` and its like."""
    sizes = list(arguments)
    if verb == "randint":
        sizes = next(([a] for a in sizes if isinstance(a, tuple)), [MISSING])
    if verb in ("full", "randperm"):
        sizes = sizes[:1]
    shape = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else tuple(sizes)
    whole = all(isinstance(size, int) for size in shape)
    default = "torch.int64" if verb in ("randint", "randperm", "arange") else "torch.float32"
    return Spec(shape if whole else None, dtype.full if isinstance(dtype, Name) else default)


@dataclass
class Library(Calls):
    def _call(self, node: ast.Call, frame: Any) -> Cells:
        if full := self.candidate.name(node):  # getattr(torch, "relu"), importlib.import_module("torch")
            return self.new(f"name:{full}", known=Name(DTYPES.get(full, full)))
        return self.call(node, frame)

    def library(self, full: str, arguments: Arguments, node: ast.Call) -> Cells:
        labels = self.contents(*arguments.every)
        if full in BUILDERS:
            self.note("build", full, node)
            return self.new("ext")
        if full in GRAPHS:
            return self.new("graph")
        if full.startswith("super."):
            self.note("reference", full, node)
            return self.mixed(arguments.every, "ref")
        if full in CACHES:
            self.remembering |= set(self.things(arguments.union, "fn:"))
            return arguments.union if arguments.positional else self.new(f"name:{CACHES[0]}", known=Name(CACHES[0]))
        if full == "hasattr" and len(arguments.positional) > 1:
            return self._hasattr(arguments)
        if full == "operator.methodcaller" and arguments.positional:
            name = f"torch.Tensor.{self.value(arguments.positional[0])}"
            return self.new(f"name:{name}", known=Name(name))
        if full in JIT or full.endswith("wrap_triton"):
            return arguments.union
        if full in ops.PARAMETERS:
            return self.new("param:")
        if full == "getattr" and len(arguments.positional) > 1:
            return self._getattr(arguments)
        if full in ("setattr", "object.__setattr__") and len(arguments.positional) > 2:
            return self._setattr(arguments)
        value = computed(full, [self.value(cells) for cells in arguments.every])
        if value is not MISSING:
            return self.new("meta", *(labels & PLAIN), known=value)
        return self._plain(full, arguments, node) or self._torch(full, arguments, node)

    def _getattr(self, arguments: Arguments) -> Cells:
        name = self.value(arguments.positional[1])
        found = self.attribute(arguments.positional[0], name) if isinstance(name, str) else self.new("?")
        return found | (arguments.positional[2] if len(arguments.positional) > 2 else EMPTY)

    def _hasattr(self, arguments: Arguments) -> Cells:
        """A question about an attribute that only calls make is one about earlier calls."""
        name = self.value(arguments.positional[1])
        kept = isinstance(name, str) and "old" in self.labels(self.attribute(arguments.positional[0], name))
        return self.new("meta", *(["past"] if kept else []), known=True if kept and self.steady else MISSING)

    def _setattr(self, arguments: Arguments) -> Cells:
        owner, name, cells = arguments.positional[:3]
        for thing in self.things(owner, "obj:"):
            if isinstance(key := self.value(name), str):
                self.state.variables[f"@{thing}", key] = cells
        return self.new("const")

    def _plain(self, full: str, arguments: Arguments, node: ast.Call) -> Cells:
        """Calls that give no tensor, or hand on what they get; empty for all others."""
        labels = self.contents(*arguments.every)
        if full.startswith(HIDDEN):
            return self._compute(ops.verb(full), arguments, node)
        if full in ("map", "filter", "functools.partial", "functools.reduce") and arguments.positional:
            return self._applied(full, arguments, node)
        if full.startswith("torch.nn.") and not full.startswith("torch.nn.functional") and full.split(".")[-1][:1].isupper():
            return arguments.union | self.new(f"mod:{full.split('.')[-1]}", "param:")
        return self._origin(full, labels) or self._through(full, arguments, labels) or self._fact_of(full, labels)

    def _origin(self, full: str, labels: Labels) -> Cells:
        """Plain values that say where they come from."""
        for label, names in ORIGINS.items():
            if full.startswith(names):
                return self.new("meta", label)
        if full in ("id", "hash"):
            return self.new("meta", *(["ptr"] if is_data(labels) else []))
        return self.new("meta", "count") if full == "next" and "count" in labels else EMPTY

    def _through(self, full: str, arguments: Arguments, labels: Labels) -> Cells:
        """Calls whose result is, or leads to, what they get."""
        if full in NUMBERS and is_data(labels):
            return self.new(*labels, "meta")
        if full in DICTIONARIES:
            return self.new("const", "dict") | arguments.union
        if full.startswith("triton.") and is_data(labels) and not full.startswith("triton.testing."):
            return arguments.union  # descriptors and other wrappers lead to their tensor
        through = full in ops.THROUGH_BUILTINS or full.startswith(THROUGH)
        return (arguments.union or self.new("const")) if through else EMPTY

    def _fact_of(self, full: str, labels: Labels) -> Cells:
        plain = full in ops.PLAIN_BUILTINS or (full.startswith(ops.PLAIN_PREFIXES) and full not in TYPES)
        return self.new("meta", *(labels & PLAIN)) if plain else EMPTY

    def _applied(self, full: str, arguments: Arguments, node: ast.Call) -> Cells:
        function, rest = arguments.positional[0], Arguments(arguments.positional[1:], arguments.named, loose=True)
        if full == "functools.partial":
            made = self.new("partial:")
            self.partials[next(iter(made))] = function, Arguments(arguments.positional[1:], arguments.named, arguments.loose)
            return made
        return self.invoke(function, rest, node)

    def _torch(self, full: str, arguments: Arguments, node: ast.Call) -> Cells:
        """An operator, as a function."""
        verb = ops.verb(full)
        if not full.startswith("torch."):
            if full.startswith(("operator.", "numpy.", "torch", "scipy.")):
                return self._compute(full, arguments, node)
            return self.unknown(arguments)
        if full.startswith("torch.ops.") and not full.startswith(OPERATORS):
            own = [n for n in self.candidate.functions if n.split(".")[-1] == verb]
            return self.function(own[0], arguments, node) if own else self.unknown(arguments)
        first = arguments.positional[0] if arguments.positional else arguments.union
        if full.startswith("torch.Tensor.") and arguments.positional:
            rest = Arguments(arguments.positional[1:], arguments.named, arguments.loose)
            return self._tensor_method(first, verb, rest, node)
        if verb in ops.VIEWS:
            return self._view(verb, first)
        return self._made(verb, first, arguments, node) or self._compute(verb, arguments, node)

    def _view(self, verb: str, cells: Cells) -> Cells:
        """The same memory; what a constructor moves elsewhere is a copy that no longer follows the original."""
        moves = verb in ("contiguous", "to", "cuda", "reshape", "type_as") and self.phase != "call"
        return self.new(*self.labels(cells), "copied") if moves and self.contents(cells) - PLAIN else cells

    def _made(self, verb: str, first: Cells, arguments: Arguments, node: ast.Call) -> Cells:
        """Memory that is allocated or copied, and facts; empty for what computes."""
        if verb in ops.FACTS:
            return self.fact(first, verb, [self.value(cells) for cells in arguments.positional[1:]])
        if verb in ops.COPIES:
            labels = self.contents(*arguments.every, first)
            return self.new(*(labels or {"const"}), *(["copied"] if labels - PLAIN else []))
        kinds = {"uninit": ops.UNINITIALISED, "const": ops.CONSTANT, "random": ops.RANDOM}
        kind = next((label for label, verbs in kinds.items() if verb in verbs), None)
        if kind is None:
            return EMPTY
        values = [self.value(cells) for cells in arguments.positional]
        data = self.contents(*arguments.every) if verb in ("tensor", "as_tensor", "from_numpy", "asarray", "full") else ()
        made = self.new(kind, "tensor", *(label for label in data if label not in PLAIN))
        if spec := random_spec(verb, values, self.value(arguments.named.get("dtype", EMPTY))):
            self.specs[next(iter(made))] = spec
        return made

    def _compute(self, verb: str, arguments: Arguments, node: ast.Call) -> Cells:
        """The work of an operator; with `out=`, or in place, into what it is given."""
        operands = [*arguments.positional, *(cells for name, cells in arguments.named.items() if name != "out")]
        labels = {*self.contents(*operands), f"lib:{verb}"}
        if verb in ("mul", "multiply") and 0 in [self.value(cells) for cells in arguments.positional]:
            return self.new("const")
        self.note("library", verb, node)
        if "out" in arguments.named:
            self.overwrite(arguments.named["out"], labels - {"uninit"})
            return arguments.named["out"]
        if verb.endswith("_") and arguments.positional:
            self.add(arguments.positional[0], labels)
            return arguments.positional[0]
        return self.new(*labels)

    def _tensor_method(self, base: Cells, name: str, arguments: Arguments, node: ast.Call) -> Cells:
        """A method of a tensor, or of a container or plain value."""
        labels = self.labels(base)
        if name in ops.OVERWRITES:
            self.overwrite(base, self.contents(*arguments.every) or {"const"})
            return base
        if name in ops.KEEPERS:
            return base
        if name in IDENTITY or name in ops.FACTS:
            return self.fact(base, name, [self.value(cells) for cells in arguments.positional])
        if name in ops.VIEWS:
            if arguments.positional:
                self.keyed(node, base, arguments.positional[0])
            if name not in ("get", "pop", "setdefault"):
                return self._view(name, base)
            return base | (arguments.union if name in ("get", "pop", "setdefault") else EMPTY)
        if labels <= PLAIN:
            return self.new("meta", *labels)
        if made := self._made(name, base, arguments, node):
            return made
        whole = Arguments([base, *arguments.positional], arguments.named, arguments.loose)
        if labels <= PLAIN | {"?", "old"}:
            return self.unknown(whole) if "?" in labels else self.mixed([base, *arguments.every])
        return self._compute(name, whole, node)
