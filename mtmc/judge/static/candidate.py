"""One candidate's text as the rules see it: full names, functions, kernels, what would run, what is the reference's.

Only what runs when the judge imports and calls a file is looked at: its top level without the `__main__` block, and every
function mentioned from there or from the entry. Text that stands in the reference word for word is the user's, not the
candidate's, and no rule speaks of it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mtmc.banned import aliases, full_name
from mtmc.judge.door import find
from mtmc.judge.static.trees import Function, code, collect, dump, hidden_names, imported, is_main, root_of
from mtmc.overrides import override
from mtmc.problem import Problem
from mtmc.program import parsed

JIT = (
    "triton.jit", "triton.autotune", "triton.heuristics", "triton.runtime.jit.jit", "triton.JITFunction",
    "triton.runtime.JITFunction", "triton.experimental.gluon.jit", "numba.cuda.jit", "helion.kernel", "tilelang.jit",
    "cutlass.cute.kernel", "cutlass.cute.jit", "warp.kernel", "cupyx.jit.rawkernel",
)  # fmt: skip
# Calls that give a compiled kernel, or a module of them, from text.
BUILDERS = (
    "torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load", "torch.cuda._compile_kernel",
    "torch.cuda.jiterator._create_jit_fn", "torch.cuda.jiterator._create_multi_output_jit_fn", "cupy.RawKernel",
    "cupy.RawModule", "cupy.ElementwiseKernel", "cupy.ReductionKernel", "pycuda.compiler.SourceModule",
)  # fmt: skip
# Methods that PyTorch or the judge calls without anybody naming them.
CALLED = frozenset({
    "forward", "kernels", "train", "eval", "to", "cuda", "cpu", "half", "float", "apply", "parameters",
    "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children", "state_dict",
    "load_state_dict", "backward",
})  # fmt: skip
BUILTINS = frozenset(dir(builtins))
OPERATORS = ("torch.ops.aten.", "torch.ops.prims.")  # of PyTorch itself
NOT_CALLED = frozenset({"get_inputs", "get_init_inputs", "main"})


@dataclass(frozen=True)
class Candidate:
    """`entry` is what the judge calls: a function, or a method of class `owner`; empty for what the file offers."""

    source: str
    problem: Problem | None = None
    entry: str = ""
    owner: str = "ModelNew"

    @cached_property
    def tree(self) -> ast.Module:
        return parsed(self.source)

    def walk(self, node: ast.AST) -> tuple[ast.AST, ...]:
        """Every node of a tree, kept for the next who asks."""
        if id(node) not in self._walked:
            self._walked[id(node)] = (node, tuple(ast.walk(node)))
        return self._walked[id(node)][1]

    @cached_property
    def _walked(self) -> dict[int, tuple[ast.AST, tuple[ast.AST, ...]]]:
        return {}

    @cached_property
    def known(self) -> dict[str, str]:
        roots = {name.split(".")[0] for node in self.walk(self.tree) for name in imported(node)}
        return aliases(self.tree, {*roots, *BUILTINS})

    @cached_property
    def bound(self) -> dict[int, frozenset[str]]:
        """Parameters that hide an outer name, for every node inside their function (by id)."""
        return hidden_names(self.tree)

    @cached_property
    def imports(self) -> frozenset[str]:
        """Names bound by imports, as the file writes them."""
        nodes = [n for n in self.walk(self.tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
        return frozenset((a.asname or a.name).split(".")[0] for n in nodes for a in n.names)

    @cached_property
    def own_names(self) -> frozenset[str]:
        """Names that the file itself defines or assigns."""
        stored = {n.id for n in self.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        defined = {n.name for n in self.walk(self.tree) if isinstance(n, (Function, ast.ClassDef))}
        return frozenset(stored | defined)

    @cached_property
    def stars(self) -> tuple[str, ...]:
        nodes = [n for n in self.walk(self.tree) if isinstance(n, ast.ImportFrom)]
        return tuple(n.module for n in nodes if n.module and any(a.name == "*" for a in n.names))

    def name(self, node: ast.AST) -> str:
        """Full name of an expression that leads to an import or a builtin, under whatever alias; else empty."""
        root = root_of(node)
        if root is not None:
            hidden = self.bound.get(id(root), frozenset())
            if root.id in hidden:
                return ""
            if root.id not in self.known and root.id not in self.imports:
                if root.id in self.own_names:
                    return ""
                if root.id not in BUILTINS:
                    return f"{self.stars[0]}.{ast.unparse(node)}" if self.stars else ""
        elif not isinstance(node, (ast.Call, ast.Subscript, ast.Attribute)):
            return ""
        found = full_name(node, self.known)
        return "" if "?" in found else found.removeprefix("builtins.")

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Functions and methods by dotted name; the last of equal names, as Python has it."""
        found: dict[str, Function] = {}
        collect(self.tree.body, "", found)
        return found

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.walk(self.tree) if isinstance(node, ast.ClassDef)}

    @cached_property
    def kernels(self) -> dict[str, Function | None]:
        """Kernels by name, Triton's with their text; None for those whose body is not at hand."""
        found: dict[str, Function | None] = {n: f for n, f in self.functions.items() if self._jitted(f)}
        for node in self.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and self.is_jit(node.value.func):
                inner = [a for call in ast.walk(node.value) if isinstance(call, ast.Call) for a in call.args]
                named = [self.functions[a.id] for a in inner if isinstance(a, ast.Name) and a.id in self.functions]
                found |= {t.id: (named[0] if named else None) for t in node.targets if isinstance(t, ast.Name)}
        return found

    def is_jit(self, node: ast.expr) -> bool:
        """Whether an expression is a kernel decorator: `triton.jit`, `triton.autotune(…)`, under any alias."""
        while isinstance(node, ast.Call):
            node = node.func
        return self.name(node) in JIT

    def _jitted(self, function: Function) -> bool:
        return any(self.is_jit(decorator) for decorator in function.decorator_list)

    def bases(self, name: str) -> list[str]:
        """A class and the classes of this file it inherits from, nearest first."""
        found = [name]
        for one in found:
            nodes = self.classes[one].bases if one in self.classes else []
            found += [b.id for b in nodes if isinstance(b, ast.Name) and b.id in self.classes and b.id not in found]
        return found

    def foreign(self, name: str) -> bool:
        """Whether a class inherits from one that another module defines."""
        bases = self.classes[name].bases
        return any(not (isinstance(b, ast.Name) and (b.id in self.classes or b.id == "object")) for b in bases)

    def is_marked(self, function: Function, mark: str) -> bool:
        """Whether a method is a `staticmethod`, `classmethod`, `property`, …"""
        return any(self.name(decorator).split(".")[-1] == mark for decorator in function.decorator_list)

    def method(self, name: str, method: str) -> str:
        """Dotted name of a class's method, own or inherited within this file; empty when there is none."""
        found = (f"{one}.{method}" for one in self.bases(name))
        return next((dotted for dotted in found if dotted in self.functions), "")

    @cached_property
    def model(self) -> str:
        """The class that is called: `owner`, or what that is another name for."""
        values = [] if self.owner in self.classes else self.origin(self.owner)
        return values[0].id if values and isinstance(values[0], ast.Name) else self.owner

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """Dotted names of the functions that the judge calls with the inputs."""
        if self.entry:
            method = self.method(self.model, self.entry)
            return (method or self.entry,) if method or self.entry in self.functions else ()
        if self.model in self.classes:
            program = self.owner in self.classes and find(self.source, 0).kind == "program"
            found = [self.method(self.model, m) for m in (*(["kernels"] if program else []), "__call__", "forward")]
            return tuple([m for m in found if m][:1])
        if self.owner in self.imports or self.origin(self.owner):
            return ()
        offered = [n for n, f in self.functions.items() if "." not in n and not n.startswith("_") and not self._jitted(f)]
        return tuple(n for n in offered if n not in NOT_CALLED)

    @cached_property
    def reference(self) -> Candidate | None:
        """The user's file; None without a problem."""
        if self.problem is None:
            return None
        return Candidate(override(self.problem.source, self.problem.overrides))

    @cached_property
    def trusted(self) -> frozenset[str]:
        """Dumps of the reference's statements, and of its functions' bodies."""
        if self.reference is None:
            return frozenset()
        functions = self.reference.functions.values()
        bodies = (dump(code(f.body)) for f in functions)
        return frozenset({*map(dump, self.reference.tree.body), *map(dump, functions), *bodies})

    def is_reference(self, function: Function) -> bool:
        """Whether a function's body is one of the reference's."""
        return bool(self.trusted) and self.body(function) in self.trusted

    def body(self, function: Function) -> str:
        """Text of a function's body, positions left out."""
        if id(function) not in self._bodies:
            self._bodies[id(function)] = dump(code(function.body))
        return self._bodies[id(function)]

    @cached_property
    def _bodies(self) -> dict[int, str]:
        return {}

    @cached_property
    def reachable(self) -> dict[str, Function]:
        """Functions that are mentioned, step by step, from the top level or from the entry; kernels among them."""
        return self._reached([*self._roots()])

    @cached_property
    def called(self) -> dict[str, Function]:
        """Functions that are mentioned, step by step, from the entry: what runs at every call."""
        entries = {name: self.functions[name] for name in self.entries}
        entries |= {name: f for name, f in self.reachable.items() if self._helps(name)}
        return self._reached([*entries.values()]) | entries

    def _helps(self, name: str) -> bool:
        """Whether it is what a call of one of the candidate's other objects runs."""
        owner, _, method = name.rpartition(".")
        by_python = method in ("forward", "__call__") or (method.startswith("__") and method != "__init__")
        return owner in self.classes and owner not in self.bases(self.model) and by_python

    def _reached(self, waiting: list[ast.AST]) -> dict[str, Function]:
        found: dict[str, Function] = {}
        seen: set[str] = set()
        while waiting:
            node = waiting.pop()
            for name in self._mentioned(node):
                if name in seen:
                    continue
                seen.add(name)
                if name in self.functions:
                    found[name] = self.functions[name]
                    waiting.append(self.functions[name])
                elif name in self.classes:
                    waiting += self._of_class(name)
                else:
                    waiting += self.origin(name)
        return found

    def _roots(self) -> Iterator[ast.AST]:
        yield from (self.functions[name] for name in self.entries)
        yield ast.Tuple([ast.Name(name) for name in self.entries if "." not in name])
        yield ast.Tuple([ast.Attribute(ast.Constant(None), name.split(".")[-1]) for name in self.entries if "." in name])
        if not self.entry or self.entry in self.functions:
            yield from self.top
            yield ast.Name(self.model)

    def _of_class(self, name: str) -> Iterator[ast.AST]:
        node = self.classes[name]
        yield from (n for n in node.body if not isinstance(n, Function))
        yield from (d for n in node.body if isinstance(n, Function) for d in n.decorator_list)
        yield from node.bases
        called = [n for n in node.body if isinstance(n, Function) and (n.name in CALLED or n.name.startswith("_"))]
        yield ast.Tuple([ast.Attribute(ast.Constant(None), n.name) for n in called])

    def _mentioned(self, node: ast.AST) -> Iterator[str]:
        """Names of this file's functions and classes that occur in a tree."""
        methods = self._methods
        for child in self.walk(node):
            if isinstance(child, ast.Name) and not isinstance(getattr(child, "ctx", None), ast.Store):
                yield child.id
            elif isinstance(child, ast.Attribute):
                full = self.name(child)
                yield from () if full else methods.get(child.attr, ())
                if full.startswith("torch.ops.") and not full.startswith(OPERATORS) and child.attr in self.functions:
                    yield child.attr
            elif isinstance(child, Function) and child is not node:
                yield from methods.get(child.name, ())

    @cached_property
    def _methods(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for dotted in (name for name in self.functions if "." in name):
            found.setdefault(dotted.split(".")[-1], []).append(dotted)
        return found

    @cached_property
    def top(self) -> tuple[ast.stmt, ...]:
        """Top-level statements that run at import and are the candidate's own; definitions are not among them."""
        body = [s for s in code(self.tree.body) if not isinstance(s, (Function, ast.ClassDef)) and not is_main(s)]
        return tuple(s for s in body if isinstance(s, (ast.Import, ast.ImportFrom)) or dump(s) not in self.trusted)

    @cached_property
    def host(self) -> dict[str, Function]:
        """Reachable functions that run on the host and are the candidate's own."""
        kernels = {id(f) for f in self.kernels.values()}
        return {n: f for n, f in self.reachable.items() if id(f) not in kernels and not self.is_reference(f)}

    @cached_property
    def device(self) -> dict[str, Function]:
        """Reachable Triton functions, kernels and what they call."""
        return {n: f for n, f in self.reachable.items() if n in self.kernels}

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the candidate's own code that can run on the host, once, in the order of the text."""
        classes = [c for c in self.classes.values() if dump(c) not in self.trusted]
        loose = [s for c in classes for s in c.body if not isinstance(s, Function)] if not self._narrow else []
        theirs = [f for f in self.reachable.values() if self.is_reference(f) and dump(f) not in self.trusted]
        decorators = [d for f in (*theirs, *self.device.values()) for d in f.decorator_list]
        roots = [*([] if self._narrow else self.top), *loose, *self.host.values(), *decorators]
        found = {id(n): n for root in roots for n in self.walk(root)}
        return tuple(sorted(found.values(), key=lambda n: getattr(n, "lineno", 0)))

    @property
    def _narrow(self) -> bool:
        """Whether only what one method of ModelNew calls is looked at."""
        return bool(self.entry) and self.entry not in self.functions

    @cached_property
    def calls(self) -> tuple[tuple[ast.Call, str], ...]:
        """Calls among `nodes` with the full name of what is called (empty when it has none)."""
        return tuple((n, self.name(n.func)) for n in self.nodes if isinstance(n, ast.Call))

    @cached_property
    def uses(self) -> tuple[tuple[ast.AST, str], ...]:
        """Names and attributes among `nodes` that lead to an import or builtin, the longest form of each, imports too."""
        inner = {id(n.value) for n in self.nodes if isinstance(n, ast.Attribute)}
        read = [n for n in self.nodes if isinstance(n, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))]
        found = [(n, self.name(n)) for n in read if id(n) not in inner]
        return tuple((n, name) for n, name in found if name)

    def origin(self, name: str) -> list[ast.expr]:
        """Values that plain assignments give to a name, anywhere in the file."""
        return self._origins.get(name, [])

    @cached_property
    def _origins(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for node in (n for n in self.walk(self.tree) if isinstance(n, ast.Assign)):
            for target in (t for t in node.targets if isinstance(t, ast.Name)):
                found.setdefault(target.id, []).append(node.value)
        return found
