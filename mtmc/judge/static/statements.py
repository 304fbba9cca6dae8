"""Statements in the dataflow: in order, both ways where the text does not decide, a loop's body twice."""

from __future__ import annotations

import ast

from mtmc.judge.static.calls import Arguments
from mtmc.judge.static.expressions import Frame
from mtmc.judge.static.library import Library
from mtmc.judge.static.memory import EMPTY, PLAIN, Attempt, Cells, Event, State, is_data, joined
from mtmc.judge.static.trees import Function


class Statements(Library):
    """The interpreter's half that moves from statement to statement."""

    def finish(self, frame: Frame) -> Cells:
        """The function's result, and the state where its returns meet."""
        self.state = joined([state for _, _, state in frame.returns]) or self.state
        self.alive = True
        return EMPTY.union(*(cells for _, cells, _ in frame.returns)) or self.new("const")

    def body(self, statements: list[ast.stmt], frame: Frame) -> None:
        """Run statements until one leaves; a function's end returns None."""
        for node in statements:
            if not self.alive:
                return
            self._run(node, frame)
        inner = isinstance(frame.function, Function) and statements is frame.function.body
        if inner and self.alive and frame.function is not None:
            self._leave(frame.function, EMPTY, frame)

    def _leave(self, node: ast.AST, cells: Cells, frame: Frame) -> None:
        frame.returns.append((node, cells, self.state.copy()))
        self.alive = False

    def _run(self, node: ast.stmt, frame: Frame) -> None:
        method = getattr(self, f"_on_{type(node).__name__.lower()}", None)
        if method is not None:
            method(node, frame)

    def _on_expr(self, node: ast.Expr, frame: Frame) -> None:
        self.evaluate(node.value, frame)

    def _on_return(self, node: ast.Return, frame: Frame) -> None:
        self._leave(node, self.evaluate(node.value, frame), frame)

    def _on_raise(self, node: ast.Raise, frame: Frame) -> None:
        self.alive = False

    def _on_break(self, node: ast.Break | ast.Continue, frame: Frame) -> None:
        frame.exits.append(self.state.copy())
        self.alive = False

    _on_continue = _on_break

    def _on_global(self, node: ast.Global | ast.Nonlocal, frame: Frame) -> None:
        frame.outer |= frozenset(node.names)

    _on_nonlocal = _on_global

    def _on_functiondef(self, node: Function, frame: Frame) -> None:
        dotted = next((n for n, f in self.candidate.functions.items() if f is node), node.name)
        kind = "kernel" if dotted in self.candidate.kernels else "fn"
        cells = self.new(f"{kind}:{dotted}")
        self.closures[next(iter(cells))] = frame
        for decorator in reversed(node.decorator_list if kind == "fn" else []):
            wrapper = self.evaluate(decorator, frame)
            if any(True for _ in self.things(wrapper, "fn:")):
                call = ast.copy_location(ast.Call(decorator, [], []), node)
                cells = self.invoke(wrapper, Arguments([cells]), call)
        self._put(node.name, cells, frame)

    _on_asyncfunctiondef = _on_functiondef

    def _on_classdef(self, node: ast.ClassDef, frame: Frame) -> None:
        self._put(node.name, self.new(f"class:{node.name}"), frame)
        for statement in node.body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    if isinstance(target, ast.Name):
                        self.state.variables[f"@{node.name}", target.id] = self.evaluate(statement.value, frame)

    def _on_assign(self, node: ast.Assign, frame: Frame) -> None:
        jitted = [t.id for t in node.targets if isinstance(t, ast.Name) and t.id in self.candidate.kernels]
        value = node.value
        cells = self.new(f"kernel:{jitted[0]}") if jitted else self.evaluate(value, frame)
        if isinstance(value, ast.BinOp) and _moves(node.targets[0], value):  # n = n + 1
            old, step = self.evaluate(node.targets[0], frame), self.new("const", known=1)
            cells = self.new("meta", "count") if self._counts(node.targets[0], old, step, frame) else cells
        for target in node.targets:
            if self._each(target, node.value, frame):
                continue
            self.bind(target, cells, frame)

    def _each(self, target: ast.expr, value: ast.expr, frame: Frame) -> bool:
        """`a, b = x, y` gives each its own."""
        sides = isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List))
        if not sides or len(target.elts) != len(value.elts):  # type: ignore[attr-defined]
            return False
        found = [self.evaluate(one, frame) for one in value.elts]  # type: ignore[attr-defined]
        for one, cells in zip(target.elts, found, strict=True):  # type: ignore[attr-defined]
            self.bind(one, cells, frame)
        return True

    def _on_annassign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self.bind(node.target, self.evaluate(node.value, frame), frame)

    def _on_augassign(self, node: ast.AugAssign, frame: Frame) -> None:
        old, new = self.evaluate(node.target, frame), self.evaluate(node.value, frame)
        if self._counts(node.target, old, new, frame):
            self.bind(node.target, self.new("meta", "count"), frame)
        elif is_data(self.contents(old)) and not self.contents(old) <= {"old", "const"}:
            made = self.binary(node, node.op, old, new)
            self.add(old, self.labels(made))
        else:
            self.bind(node.target, self.binary(node, node.op, old, new), frame)

    def _counts(self, target: ast.expr, old: Cells, step: Cells, frame: Frame) -> bool:
        """Whether something that lives on from call to call moves by a number of the text."""
        kept = not isinstance(target, ast.Name) or target.id in frame.outer
        number = isinstance(self.value(step), (int, float))
        return kept and number and self.labels(old) <= PLAIN | {"old"}

    def bind(self, target: ast.expr, cells: Cells, frame: Frame) -> None:
        """Give a name, attribute or item its cells."""
        if isinstance(target, ast.Name):
            self._put(target.id, cells, frame)
        elif isinstance(target, (ast.Tuple, ast.List)):
            value = self.value(cells)
            exact = isinstance(value, tuple) and len(value) == len(target.elts)
            for number, one in enumerate(target.elts):
                part = self.new("meta", known=value[number]) if exact else cells
                self.bind(one.value if isinstance(one, ast.Starred) else one, part, frame)
        elif isinstance(target, ast.Attribute):
            self._set_attribute(target, cells, frame)
        elif isinstance(target, ast.Subscript):
            self._item(target, cells, frame)

    def _put(self, name: str, cells: Cells, frame: Frame) -> None:
        if name in frame.outer:
            home = frame.parent
            while home is not None and home.number and (home.number, name) not in self.state.variables:
                home = home.parent
            self.keep(name, cells, frame.function or self.candidate.tree)
            frame = home or self.top
        self.state.variables[frame.number, name] = cells

    def _set_attribute(self, target: ast.Attribute, cells: Cells, frame: Frame) -> None:
        owner = self.evaluate(target.value, frame)
        for kind in ("obj:", "class:", "fn:"):
            for thing in self.things(owner, kind):
                self.state.variables[f"@{thing}", target.attr] = cells
        if target.attr == "data":
            self.overwrite(owner, self.contents(cells))
        self.keep(target.attr, cells, target)

    def _item(self, target: ast.Subscript, cells: Cells, frame: Frame) -> None:
        """`x[:] = y` replaces what a tensor holds; an item put into a container can be found there."""
        base = self.evaluate(target.value, frame)
        self.keyed(target, base, self.evaluate(target.slice, frame))
        contents = self.contents(cells)
        labels = self.labels(base)
        if is_data(labels) and "dict" not in labels and not labels <= PLAIN | {"old"}:
            whole = ast.unparse(target.slice) in (":", "...")
            (self.overwrite if whole else self.add)(base, contents or {"const"})
        else:
            self.bind_more(target.value, cells, frame)

    def bind_more(self, target: ast.expr, cells: Cells, frame: Frame) -> None:
        """More cells under the name of a container."""
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, (ast.Name, ast.Attribute)):
            held = self.evaluate(target, frame)
            if isinstance(target, ast.Name):
                home: Frame | None = frame
                while home and home.parent and (home.number, target.id) not in self.state.variables:
                    home = home.parent
                self.state.variables[(home or frame).number, target.id] = held | cells
            else:
                self._set_attribute(target, held | cells, frame)

    def _on_if(self, node: ast.If, frame: Frame) -> None:
        test = self.truth(node.test, frame)
        if test is not None:
            self.body(node.body if test else node.orelse, frame)
            return
        other = self.state.extended(node.test, False)
        self.state = self.state.extended(node.test, True)
        self.body(node.body, frame)
        one, self.state, alive = self.state, other, self.alive
        self.alive = True
        self.body(node.orelse, frame)
        ends = [one if alive else None, self.state if self.alive else None]
        self.alive = alive or self.alive
        self.state = joined(ends) or self.state

    def _on_match(self, node: ast.Match, frame: Frame) -> None:
        """Any of the cases, or none."""
        subject = self.evaluate(node.subject, frame)
        ends, before = [self.state.copy()], self.state
        for case in node.cases:
            self.state, self.alive = before.copy(), True
            for name in (n.name for n in ast.walk(case.pattern) if isinstance(n, ast.MatchAs) and n.name):
                self._put(name, subject, frame)
            self.body(case.body, frame)
            ends += [self.state] if self.alive else []
        whole = any(isinstance(c.pattern, ast.MatchAs) and c.pattern.pattern is None and c.guard is None for c in node.cases)
        self.state, self.alive = joined(ends[1:] if whole else ends) or before, not whole or len(ends) > 1

    def _on_for(self, node: ast.For, frame: Frame) -> None:
        items = self.evaluate(node.iter, frame)
        value = self.value(items)
        if isinstance(value, (range, tuple)) and not value:
            return
        self._loop(node, items, frame)

    _on_asyncfor = _on_for

    def _on_while(self, node: ast.While, frame: Frame) -> None:
        if self.truth(node.test, frame) is not False:
            self._loop(node, None, frame)

    def _loop(self, node: ast.For | ast.While, items: Cells | None, frame: Frame) -> None:
        """The body twice: what the first turn leaves, the second finds."""
        exits, frame.exits = frame.exits, []
        self._forget(node, frame)
        for _ in range(2):
            if items is not None and isinstance(node, ast.For):
                known = isinstance(self.value(items), (range, tuple))
                self.bind(node.target, self.new("meta") if known else items, frame)
            self.body(node.body, frame)
            ends = [*frame.exits, *([self.state] if self.alive else [])]
            if not ends:
                break
            self.state, self.alive = joined(ends) or self.state, True
        frame.exits = exits
        if self.alive:
            self.body(node.orelse, frame)

    def _forget(self, node: ast.AST, frame: Frame) -> None:
        """A name that a loop assigns has no known value in it."""
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                cells = self.state.variables.get((frame.number, child.id), EMPTY)
                if any(cell in self.known for cell in cells):
                    self.state.variables[frame.number, child.id] = self.new(*(self.labels(cells) | {"meta"}))

    def _on_with(self, node: ast.With, frame: Frame) -> None:
        swallows = False
        for item in node.items:
            cells = self.evaluate(item.context_expr, frame)
            call = item.context_expr
            swallows |= isinstance(call, ast.Call) and self.candidate.name(call.func) == "contextlib.suppress"
            if item.optional_vars is not None:
                self.bind(item.optional_vars, cells, frame)
        start = len(self.events)
        self.body(node.body, frame)
        if swallows:
            self.attempts.append(Attempt(node, tuple(self.events[start:]), (), ()))

    _on_asyncwith = _on_with

    def _on_try(self, node: ast.Try, frame: Frame) -> None:
        """The body is taken to succeed; what its handlers would do is only noted."""
        before, start = self.state.copy(), len(self.events)
        self.body(node.body, frame)
        if self.alive:
            self.body(node.orelse, frame)
        after, alive, done = self.state, self.alive, self.events[start:]
        for handler in node.handlers:
            self._handler(handler, before.copy(), frame, done)
        self.state, self.alive = after, alive
        if self.alive or node.finalbody:
            self.alive = True
            self.body(node.finalbody, frame)
            self.alive = alive and self.alive

    _on_trystar = _on_try

    def _handler(self, handler: ast.ExceptHandler, state: State, frame: Frame, done: list[Event]) -> None:
        if any(isinstance(n, ast.Raise) for n in handler.body):
            return
        self.state, self.alive = state, True
        start, returns = len(self.events), len(frame.returns)
        self.body(handler.body, frame)
        labels = tuple(state.labels.get(c, frozenset()) for _, cells, state in frame.returns[returns:] for c in cells)
        self.attempts.append(Attempt(handler, tuple(done), tuple(self.events[start:]), labels))
        del frame.returns[returns:], self.events[start:]


def _moves(target: ast.expr, value: ast.expr) -> bool:
    """Whether a value is made of what the target held and of numbers of the text, by more or less."""
    nodes = list(ast.walk(value))
    own = [n for n in nodes if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)) and _same(n, target)]
    inside = {id(n) for one in own for n in ast.walk(one)}
    others = [n for n in nodes if isinstance(n, (ast.Name, ast.Attribute, ast.Call)) and id(n) not in inside]
    return bool(own) and not others and any(isinstance(n, (ast.Add, ast.Sub)) for n in nodes)


def _same(a: ast.expr, b: ast.expr) -> bool:
    return ast.unparse(a) == ast.unparse(b)
