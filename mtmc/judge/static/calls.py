"""Calls in the dataflow: the candidate's own functions and classes, kernels' launches, PyTorch, and what is not known."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from mtmc.judge.static import operators as ops
from mtmc.judge.static.expressions import Expressions, Frame
from mtmc.judge.static.kernels import Store, stores
from mtmc.judge.static.memory import EMPTY, MISSING, Cells, Labels, Name, Stored, is_data
from mtmc.judge.static.trees import Function, code, dump

DEPTH, RECURSION = 30, 2
CACHES = ("functools.lru_cache", "functools.cache", "functools.cached_property")


@dataclass
class Arguments:
    """Cells of a call's arguments; `loose` when a starred one hides which parameter gets what."""

    positional: list[Cells] = field(default_factory=list)
    named: dict[str, Cells] = field(default_factory=dict)
    loose: bool = False

    @property
    def every(self) -> list[Cells]:
        return [*self.positional, *self.named.values()]

    @property
    def union(self) -> Cells:
        return EMPTY.union(*self.every)


@dataclass
class Calls(Expressions):
    running: list[str] = field(default_factory=list)
    remembering: set[str] = field(default_factory=set)
    partials: dict[int, tuple[Cells, Arguments]] = field(default_factory=dict)
    summaries: dict[tuple[str, tuple[tuple[str, float], ...]], tuple[Store, ...]] = field(default_factory=dict)

    def body(self, statements: list[ast.stmt], frame: Frame) -> None:
        raise NotImplementedError

    def finish(self, frame: Frame) -> Cells:
        raise NotImplementedError

    def arguments(self, node: ast.Call, frame: Frame) -> Arguments:
        found = Arguments()
        for one in node.args:
            cells = self.evaluate(one, frame)
            value = self.value(cells)
            if isinstance(one, ast.Starred) and isinstance(value, tuple):
                found.positional += [self.new("meta", known=item) for item in value]
            else:
                found.loose |= isinstance(one, ast.Starred)
                found.positional.append(cells)
        for keyword in node.keywords:
            cells = self.evaluate(keyword.value, frame)
            found.named[keyword.arg or "**"] = cells
            found.loose |= keyword.arg is None and is_data(self.labels(cells))
        return found

    def call(self, node: ast.Call, frame: Frame) -> Cells:
        function = node.func
        if isinstance(function, ast.Subscript):
            base, grid = self.evaluate(function.value, frame), self.evaluate(function.slice, frame)
            if not any(True for _ in self.things(base, "fn:")):
                return self.launch(node, base, grid, self.arguments(node, frame))
        if isinstance(function, ast.Attribute) and not self.candidate.name(function):
            base = self.evaluate(function.value, frame)
            arguments = self.arguments(node, frame)
            if function.attr in ops.KEEPERS:
                self._keep(function, base, arguments, frame)
            return self.method(base, function.attr, arguments, node)
        callee = self.evaluate(function, frame)
        if self.value(callee) == Name("super"):
            return self.new(f"super:{frame.owner}", *(f"self:{c}" for c in self._selves(frame)))
        return self.invoke(callee, self.arguments(node, frame), node)

    def _selves(self, frame: Frame) -> Iterable[str]:
        function = frame.function
        first = function.args.args[0].arg if isinstance(function, Function) and function.args.args else "self"
        return list(self.things(self.lookup(first, frame), "obj:"))

    def _keep(self, function: ast.Attribute, base: Cells, arguments: Arguments, frame: Frame) -> None:
        """What is put into a container can be found under the container's name; buffers become attributes."""
        owners = list(self.things(base, "obj:"))
        named = self.value(arguments.positional[0]) if arguments.positional else MISSING
        if owners and isinstance(named, str) and len(arguments.positional) > 1:
            for owner in owners:
                self.state.variables[f"@{owner}", named] = arguments.positional[1]
            self.keep(named, arguments.positional[1], function)
        elif not owners:
            self.bind_more(function.value, arguments.union, frame)

    def bind_more(self, target: ast.expr, cells: Cells, frame: Frame) -> None:
        raise NotImplementedError

    def keep(self, name: str, cells: Cells, place: ast.AST) -> None:
        """Note that an attribute or global gets a value."""
        self.stored.append(Stored(place, name, self.labels(cells), self.state.path, self.phase))

    def invoke(self, callee: Cells, arguments: Arguments, node: ast.Call) -> Cells:
        """What a call of these things gives."""
        found = EMPTY
        for cell in sorted(callee):
            labels = self.state.labels.get(cell, frozenset())
            for label in sorted(labels):
                found |= self._invoke_one(cell, label, labels, arguments, node)
        return found or self.unknown(arguments)

    def _invoke_one(self, cell: int, label: str, labels: Labels, arguments: Arguments, node: ast.Call) -> Cells:
        kind, _, name = label.partition(":")
        if kind == "fn":
            owner = next((x.removeprefix("self:") for x in labels if x.startswith("self:")), "")
            return self.function(name, arguments, node, owner, self.closures.get(cell))
        if kind == "class":
            return self.instance(name, arguments, node)
        if kind == "partial":
            function, first = self.partials[cell]
            loose = first.loose or arguments.loose
            every = Arguments(first.positional + arguments.positional, first.named | arguments.named, loose)
            return self.invoke(function, every, node)
        if kind == "apply":
            return self.method(self.new(f"class:{name}"), "apply", arguments, node)
        if kind == "obj":
            return self.method(frozenset({cell}), "__call__", arguments, node)
        if kind == "mod":
            self.note("library", f"nn.{name}", node)
            return self.mixed(arguments.every, f"lib:nn.{name}", "param:")
        if kind == "kernel":
            return self.launch(node, frozenset({cell}), EMPTY, arguments)
        if kind == "name":
            return self.library(name, arguments, node)
        if label == "ext":
            return self.extension(arguments, node)
        if kind == "param":
            self.note("library", f"self.{name}", node)
            return self.mixed(arguments.every, f"lib:{name}", label)
        return EMPTY

    def unknown(self, arguments: Arguments) -> Cells:
        self.add(arguments.union, ["?"])
        return self.mixed(arguments.every, "?")

    def instance(self, name: str, arguments: Arguments, node: ast.Call) -> Cells:
        made = self.new(f"obj:{name}")
        for field_name, cells in arguments.named.items():  # a dataclass; a constructor of its own comes after
            self.state.variables[f"@{name}", field_name] = cells
        if method := self.candidate.method(name, "__init__"):
            phase, self.phase = self.phase, "init" if self.phase == "import" else self.phase
            self.function(method, arguments, node, name)
            self.phase = phase
        return made

    def method(self, base: Cells, name: str, arguments: Arguments, node: ast.Call) -> Cells:
        """`base.name(…)`."""
        value = self.value(base)
        if isinstance(value, Name):
            return self.library(f"{value.full}.{name}", arguments, node)
        labels = self.labels(base)
        if "ext" in labels:
            return self.extension(arguments, node)
        if name == "replay" and labels & {"graph", "old"}:
            return self._replay(node)
        if any(label.startswith("kernel:") for label in labels):
            return self.launch(node, base, EMPTY, arguments) if name in ("run", "launch") else self.new("meta")
        found = EMPTY
        for kind in ("super:", "obj:", "class:", "fn:"):
            for thing in self.things(base, kind):
                found |= self._own_method(kind, thing, name, base, arguments, node)
        return found or self._tensor_method(base, name, arguments, node)

    def _own_method(self, kind: str, thing: str, name: str, base: Cells, arguments: Arguments, node: ast.Call) -> Cells:
        owner = thing
        names = [name, *(["forward"] if name == "__call__" or (kind == "class:" and name == "apply") else [])]
        places = self.candidate.bases(thing)
        if kind == "super:":
            owner, places = next(self.things(base, "self:"), thing), places[1:]
        found = [f"{place}.{n}" for place in places for n in names if f"{place}.{n}" in self.candidate.functions]
        if found:
            if kind == "class:" and name == "apply":
                arguments = Arguments([self.new("meta"), *arguments.positional], arguments.named, arguments.loose)
            return self.function(found[0], arguments, node, "" if kind == "class:" else owner)
        if kind == "super:" and name in ("forward", "__call__"):
            self.note("reference", "super().forward", node)
            return self.mixed(arguments.every, "ref")
        if kind in ("obj:", "class:") and any((f"@{place}", name) in self.state.variables for place in places):
            return self.invoke(self.attribute(self.new(f"obj:{thing}"), name), arguments, node)
        if name in ("parameters", "buffers", "named_parameters", "named_buffers", "state_dict", "children", "modules"):
            return self.new("param:")
        if name in ("register_buffer", "register_parameter", "add_module", "train", "eval", "__init__"):
            return base
        return self.new(f"lib:{name}", "param:") if kind == "obj:" and self._is_called(name, arguments, node) else EMPTY

    def _is_called(self, name: str, arguments: Arguments, node: ast.Call) -> bool:
        """A submodule that this file does not show being made is called with data."""
        if not is_data(self.contents(*arguments.every)):
            return False
        self.note("library", f"self.{name}", node)
        return True

    def function(
        self, name: str, arguments: Arguments, node: ast.AST, owner: str = "", closure: Frame | None = None
    ) -> Cells:
        """Follow a call into the candidate's own function."""
        function = self.lambdas.get(name) or self.candidate.functions.get(name)
        if function is None or len(self.running) > DEPTH or self.running.count(name) >= RECURSION:
            return self.unknown(arguments)
        if (name in self.cached or name in self.remembering) and is_data(self.contents(*arguments.every)):
            self.note("cached", name, node)
        self.cells += 1
        frame = Frame(self.cells, function, name.rpartition(".")[0], closure or self.top)
        self._parameters(function, arguments, owner, frame)
        self.running.append(name)
        if isinstance(function, ast.Lambda):
            result = self.evaluate(function.body, frame)
        else:
            self.body(function.body, frame)
            result = self.finish(frame)
        self.running.pop()
        if isinstance(function, Function) and self._is_reference(name, function):
            self.note("reference", name, node)
            result = self.mixed([result], "ref")
        return result

    @cached_property
    def cached(self) -> frozenset[str]:
        """Functions that remember their results."""
        found = set()
        for name, function in self.candidate.functions.items():
            decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
            if any(self.candidate.name(d) in CACHES for d in decorators):
                found.add(name)
        return frozenset(found)

    def _is_reference(self, name: str, function: Function) -> bool:
        """Whether this is the reference's forward, under whatever name."""
        if self.candidate.problem is None:
            return name == "Model.forward" and "ModelNew" in self.candidate.classes
        return bool(self._original) and self.candidate.body(function) == self._original

    @cached_property
    def _original(self) -> str:
        """The reference's forward."""
        reference, problem = self.candidate.reference, self.candidate.problem
        if reference is None or problem is None:
            return ""
        original = reference.functions.get(reference.method(problem.entry, "forward"))
        return dump(code(original.body)) if original else ""

    def property_of(self, method: str, bound: Cells) -> Cells:
        """What an attribute that is a method gives: a property's value, else the method."""
        function = self.candidate.functions[method]
        if self.candidate.is_marked(function, "property") or self.candidate.is_marked(function, "cached_property"):
            return self.invoke(bound, Arguments(), ast.Call(ast.Name(method), [], []))
        return bound

    def _parameters(self, function: Function | ast.Lambda, arguments: Arguments, owner: str, frame: Frame) -> None:
        spec, put = function.args, self.state.variables
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        given = [*self._receiver(function, owner), *arguments.positional]
        defaults = {n: d for n, d in zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True)}
        defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
        for name in (*names, *(a.arg for a in spec.kwonlyargs)):
            put[frame.number, name] = arguments.named.get(name, EMPTY)
        for name, cells in zip(names, given, strict=False):
            put[frame.number, name] = cells
        for name, default in defaults.items():
            if not put[frame.number, name]:
                put[frame.number, name] = self._default(default)
        rest = given[len(names) :]
        for extra, held in ((spec.vararg, rest), (spec.kwarg, list(arguments.named.values()))):
            if extra is not None:
                put[frame.number, extra.arg] = EMPTY.union(*held) or self.new("const")
        if arguments.loose:
            for name in names[1 if owner else 0 :]:
                put[frame.number, name] |= arguments.union

    def _receiver(self, function: Function | ast.Lambda, owner: str) -> list[Cells]:
        """What a method gets as its first argument."""
        if isinstance(function, Function) and self.candidate.is_marked(function, "staticmethod"):
            return []
        if isinstance(function, Function) and self.candidate.is_marked(function, "classmethod"):
            return [self.new(f"class:{owner or self.candidate.model}")]
        return [self.new(f"obj:{owner}")] if owner else []

    def _default(self, node: ast.expr) -> Cells:
        """A default; a list or dict lives on from call to call."""
        return (
            self.new("old", "dict")
            if isinstance(node, (ast.List, ast.Dict, ast.Set, ast.Call))
            else self.evaluate(node, self.top)
        )

    def launch(self, node: ast.Call, base: Cells, grid: Cells, arguments: Arguments) -> Cells:
        """A kernel's launch: what it stores into is now made of what it reads."""
        arguments = self._followed(arguments)
        kernels = list(self.things(base, "kernel:"))
        sizes = self.value(grid)
        if isinstance(sizes, tuple) and 0 in sizes:
            self.note("empty launch", (kernels or ["?"])[0], node)
            return self.new("meta")
        if not kernels:
            return self.unknown(arguments)
        for name in kernels:
            self.note("launch", name, node)
            function = self.candidate.kernels.get(name)
            if function is None or arguments.loose:
                self.extension(arguments, node, name)
            else:
                self._store(name, function, arguments, weak=len(kernels) > 1)
        return self.new("meta")

    def _followed(self, arguments: Arguments) -> Arguments:
        """Tensors instead of their addresses."""

        def led(cells: Cells) -> Cells:
            return cells.union(*[self.pointees.get(cell, EMPTY) for cell in cells])

        return Arguments(
            [led(c) for c in arguments.positional], {n: led(c) for n, c in arguments.named.items()}, arguments.loose
        )

    def _store(self, name: str, function: Function, arguments: Arguments, weak: bool) -> None:
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        bound = dict(zip(names, arguments.positional, strict=False)) | arguments.named
        numbers = {n: v for n, cells in bound.items() if isinstance(v := self.value(cells), (int, float))}
        tensors = {n for n, cells in bound.items() if is_data(self.labels(cells))}
        written: dict[int, set[str]] = {}
        key = name, tuple(sorted(numbers.items()))
        if key not in self.summaries:
            self.summaries[key] = stores(self.candidate, function, numbers)
        for store in self.summaries[key]:
            reads = [bound[n] for n in sorted(store.sources & bound.keys())]
            copy = store.copy and len(store.sources & tensors) <= 1 and not store.adds
            labels = {f"{'copy' if copy else 'K'}:{name}", *self.contents(*reads)}
            for cell in EMPTY.union(*(bound[n] for n in store.at & tensors)):
                before = self.state.labels[cell] if store.adds or weak else frozenset()
                written.setdefault(cell, set()).update(labels, before - {"uninit"})
        for cell, found in written.items():
            self.overwrite(frozenset({cell}), found)

    def extension(self, arguments: Arguments, node: ast.Call, name: str = "extension") -> Cells:
        """A kernel whose body is not at hand may write to every tensor it gets, also by address."""
        arguments = self._followed(arguments)
        if name == "extension":
            self.note("launch", name, node)
        labels = self.contents(*arguments.every)
        for cells in arguments.every:
            if is_data(self.labels(cells)) and self.labels(cells) != {"input"}:
                self.add(cells, {f"K:{name}", *labels} - {"uninit"})
        return self.new(f"K:{name}", *labels)

    def _replay(self, node: ast.Call) -> Cells:
        """A CUDA graph computes again from what its static inputs hold now."""
        self.note("replay", "CUDAGraph", node)
        kept = [c for c in self.olds if c in self.state.labels]
        fresh = {label for c in kept for label in self.state.labels[c]}
        self.add(frozenset(kept), {*fresh, "K:graph"} - {"uninit", "graph"})
        return self.new("meta")

    def library(self, full: str, arguments: Arguments, node: ast.Call) -> Cells:
        """A call of something known by its full name."""
        raise NotImplementedError

    def _tensor_method(self, base: Cells, name: str, arguments: Arguments, node: ast.Call) -> Cells:
        raise NotImplementedError
