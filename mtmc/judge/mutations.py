"""How a correct Triton program can be broken: one function a kind of defect, a change of text each.

Rounding compensation (`lost`, `rest`) is left alone: without it the sum is a plain sum, which is no defect as long as the
accuracy rule holds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from mtmc.judge.sites import (
    ACCESS,
    ADDRESSING,
    COMPENSATION,
    Change,
    Code,
    accesses,
    addressing,
    assignments,
    called,
    launches,
    mask_of,
    names,
    short,
    values,
)

SWAPPED = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "argmax": "argmin", "argmin": "argmax"}
SWAPPED |= {"sum": "max", "exp": "exp2", "log": "log2", "cumsum": "cumprod"}
UNARY = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "sigmoid", "erf", "floor", "ceil", "sin", "cos", "tanh")
OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], str]] = {
    ast.Add: (ast.Sub, "- for +"),
    ast.Sub: (ast.Add, "+ for -"),
    ast.Mult: (ast.Add, "+ for *"),
    ast.Div: (ast.Mult, "* for /"),
}
ALLOCATORS = ("empty", "empty_like", "zeros", "zeros_like", "new_empty", "new_zeros")
LOWER = {"torch.int64": "torch.int32", "torch.int32": "torch.int16", "torch.bool": "torch.int8"}  # else torch.float16
TINY = 1e-3  # constants below are made twice as large, others an eighth larger


def mask_dropped(code: Code) -> Iterator[Change]:
    """A load or store without its mask, or a mask without one of its conditions."""
    for function in code.jitted():
        for call in accesses(function.node):
            if mask_of(call) is None:
                continue
            place = ACCESS[called(call)]
            bare = ast.Call(call.func, call.args[:place], [k for k in call.keywords if k.arg not in ("mask", "other")])
            yield code.change(call, ast.unparse(bare), f"the mask of {short(call)} is dropped")
        for node in addressing(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
                for kept, lost in ((node.left, node.right), (node.right, node.left)):
                    yield code.change(node, f"({ast.unparse(kept)})", f"the mask forgets {short(lost)}")


def other_changed(code: Code) -> Iterator[Change]:
    """What masked lanes hold: `other=` of a load, the last argument of a `where` on a mask."""
    for function in code.jitted():
        for call in accesses(function.node):
            for keyword in call.keywords:
                if keyword.arg == "other":
                    new = _other(keyword.value)
                    yield code.change(keyword.value, new, f"masked lanes hold {new}, not {short(keyword.value)}")
        for node in values(function):
            if isinstance(node, ast.Call) and called(node) == "where" and names(node.args[0]) & function.addresses:
                if not names(node.args[2]) - {"float"}:
                    new = _other(node.args[2])
                    yield code.change(node.args[2], new, f"masked lanes hold {new}, not {short(node.args[2])}")


def _other(value: ast.expr) -> str:
    return "1.0" if ast.unparse(value) in ("0", "0.0") else "0.0"


def reduction_shortened(code: Code) -> Iterator[Change]:
    """A loop with a step less at either end, or a sum that forgets what it had."""
    for function in code.jitted():
        for node in ast.walk(function.node):
            if isinstance(node, ast.For) and called(node.iter) in ("range", "static_range"):
                yield from _shorter(code, node.iter)
            if isinstance(node, ast.For):
                yield from _forgetful(code, node)


def _shorter(code: Code, call: ast.expr) -> Iterator[Change]:
    assert isinstance(call, ast.Call)
    step = ast.unparse(call.args[2]) if len(call.args) > 2 else "1"
    stop = call.args[1] if len(call.args) > 1 else call.args[0]
    yield code.change(stop, f"{ast.unparse(stop)} - {step}", f"{short(call)} ends one step early")
    if len(call.args) > 1:
        start = call.args[0]
        yield code.change(start, f"{ast.unparse(start)} + {step}", f"{short(call)} begins one step late")


def _forgetful(code: Code, loop: ast.For) -> Iterator[Change]:
    """What a step adds to takes the place of what was there."""
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and not names(node.target) & COMPENSATION:
            text = f"{ast.unparse(node.target)} = {ast.unparse(node.value)}"
            yield code.change(node, text, f"only the last step of {short(node)} counts")
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            targets = set().union(*(names(target) for target in node.targets)) - COMPENSATION
            for argument in node.value.args:
                if isinstance(argument, ast.Name) and argument.id in targets:
                    text = f"tl.zeros_like({argument.id})"
                    yield code.change(argument, text, f"only the last step of {short(node)} counts")


def operation_skipped(code: Code) -> Iterator[Change]:
    """A function of one value gone, one side of an operation gone."""
    device = {f.node.name for f in code.jitted()}
    for function in code.jitted():
        for node in values(function):
            if isinstance(node, ast.Call) and len(node.args) == 1 and called(node) in (*UNARY, *device):
                yield code.change(node, f"({ast.unparse(node.args[0])})", f"{short(node)} is skipped")
            elif isinstance(node, ast.Call) and called(node) in ("maximum", "minimum"):
                yield code.change(node, f"({ast.unparse(node.args[0])})", f"{short(node)} is skipped")
            elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
                kept, lost = (node.right, node.left) if isinstance(node.left, ast.Constant) else (node.left, node.right)
                if not isinstance(kept, ast.Constant):
                    yield code.change(node, f"({ast.unparse(kept)})", f"{short(lost)} is left out of {short(node)}")


def operator_swapped(code: Code) -> Iterator[Change]:
    """Another operator or function in the place of one."""
    for function in code.jitted():
        for node in values(function):
            if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
                other, what = OPERATORS[type(node.op)]
                text = ast.unparse(ast.BinOp(node.left, other(), node.right))
                yield code.change(node, f"({text})", f"{what} in {short(node)}")
            elif isinstance(node, ast.Call) and called(node) in SWAPPED and isinstance(node.func, ast.Attribute):
                func = ast.Attribute(node.func.value, SWAPPED[called(node)], ast.Load())
                yield code.change(node.func, ast.unparse(func), f"{func.attr} for {called(node)} in {short(node)}")
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Lt, ast.Gt)):
                turned = ast.Compare(
                    node.left, [ast.Gt() if isinstance(node.ops[0], ast.Lt) else ast.Lt()], node.comparators
                )
                yield code.change(node, f"({ast.unparse(turned)})", f"{short(node)} turned round")
        for _, statement, value in assignments(function.node):
            if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
                text = f"{ast.unparse(statement.target)} -= {ast.unparse(value)}"
                yield code.change(statement, text, f"-= for += in {short(statement)}")


def precision_lowered(code: Code) -> Iterator[Change]:
    """A value rounded to 16 bits on its way, a product in TF32."""
    for function in code.jitted():
        for targets, statement, value in assignments(function.node):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            plain = isinstance(value, (ast.Constant, ast.Compare, ast.Tuple, ast.Name)) or called(value) in ADDRESSING
            if not isinstance(target, ast.Name) or plain or targets & (function.addresses | COMPENSATION):
                continue
            for dtype in ("float16", "bfloat16"):
                text = f"{target.id} = {target.id}.to(tl.{dtype}).to({target.id}.dtype)"
                yield code.after(statement, text, f"{target.id} is rounded to {dtype}")
        for node in ast.walk(function.node):
            if isinstance(node, ast.keyword) and node.arg == "input_precision" and isinstance(node.value, ast.Constant):
                if node.value.value != "tf32":
                    yield code.change(node.value, '"tf32"', f"TF32 for {node.value.value!s}")


def off_by_one(code: Code) -> Iterator[Change]:
    """A bound one too high or too low, an address one too far."""
    for function in code.jitted():
        for node in addressing(function):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
                bound = node.comparators[0]
                yield code.change(bound, f"{ast.unparse(bound)} + 1", f"{short(node)} lets one more in")
                yield code.change(bound, f"{ast.unparse(bound)} - 1", f"{short(node)} lets one fewer in")
        for call in accesses(function.node):
            yield code.change(call.args[0], f"{ast.unparse(call.args[0])} + 1", f"{short(call)} one element too far")


def wrong_stride(code: Code) -> Iterator[Change]:
    """A factor of an address one too large, a stride of another dimension."""
    for function in code.jitted():
        for node in addressing(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Name):
                text = f"({ast.unparse(node.right)} + 1)"
                yield code.change(node.right, text, f"{node.right.id} + 1 for {node.right.id} in {short(node)}")
    for function in code.hosts():
        strides = [n for n in ast.walk(function.node) if isinstance(n, ast.Call) and called(n) == "stride" and n.args]
        for node in strides:
            for other in strides:
                if ast.dump(node.func) == ast.dump(other.func) and ast.dump(node) != ast.dump(other):
                    yield code.change(node, ast.unparse(other), f"{short(other)} in the place of {short(node)}")


def wrong_constant(code: Code) -> Iterator[Change]:
    """A number in a formula, a constant given to a launch, a divisor."""
    for function in code.jitted():
        for node in values(function):
            if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
                yield code.change(node, (new := _number(node.value)), f"{new} for {node.value}")
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Name):
                if node.right.id in function.addresses:
                    yield code.change(node.right, f"({node.right.id} + 1)", f"division by {node.right.id} + 1")
    for function in code.hosts():
        for launch in launches(function.node):
            for keyword in launch.keywords:
                if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, float):
                    new = _number(keyword.value.value)
                    yield code.change(keyword.value, new, f"{keyword.arg} is {new}, not {keyword.value.value}")


def _number(value: float) -> str:
    if isinstance(value, int):
        return repr(value + 1)
    return repr(0.5 if value == 0 else value * 2 if abs(value) < TINY else value * 1.125)


def missing_initial(code: Code) -> Iterator[Change]:
    """An accumulator that starts at another value, or is not reset; memory that is not cleared."""
    for function in code.jitted():
        seen: set[str] = set()
        for targets, statement, value in assignments(function.node):
            name = ", ".join(targets)
            if targets & COMPENSATION or called(value) not in ("zeros", "full"):
                continue
            assert isinstance(value, ast.Call)
            if called(value) == "zeros":
                yield code.change(value, f"{ast.unparse(value)} + 1", f"{name} starts at 1")
            elif len(value.args) > 1 and ast.unparse(value.args[1]) not in ("0", "0.0"):
                yield code.change(value.args[1], "0.0", f"{name} starts at 0, not {short(value.args[1])}")
            if name in seen:
                yield code.change(statement, "pass", f"{name} is not reset")
            seen.add(name)
    for function in code.hosts():
        for node in ast.walk(function.node):
            if isinstance(node, ast.Call) and called(node) in ("zeros", "zeros_like", "new_zeros"):
                assert isinstance(node.func, ast.Attribute)
                func = ast.Attribute(node.func.value, called(node).replace("zeros", "empty"), ast.Load())
                yield code.change(node.func, ast.unparse(func), f"{short(node)} is not cleared")


def wrong_grid(code: Code) -> Iterator[Change]:
    """One program short along an axis of the grid, or the last partial block forgotten."""
    for function in code.hosts():
        for grid in _grids(function.node):
            for extent in grid.elts:
                yield code.change(extent, f"({ast.unparse(extent)}) - 1", f"one program short in {short(grid)}")
                for node in ast.walk(extent):
                    if isinstance(node, ast.Call) and called(node) == "cdiv":
                        a, b = (ast.unparse(argument) for argument in node.args)
                        yield code.change(node, f"(({a}) // ({b}))", f"{short(node)} rounds down")


def _grids(function: ast.FunctionDef) -> Iterator[ast.Tuple]:
    """The tuples that launches of a function are made over: written there, assigned to a name, or returned by a lambda."""
    assigned = {name: value for targets, _, value in assignments(function) for name in targets}
    for launch in launches(function):
        assert isinstance(launch.func, ast.Subscript)
        grid: ast.expr | None = launch.func.slice
        if isinstance(grid, ast.Name):
            grid = assigned.get(grid.id)
        if isinstance(grid, ast.Lambda):
            grid = grid.body
        if isinstance(grid, ast.Tuple):
            yield grid


def wrong_dtype(code: Code) -> Iterator[Change]:
    """Results kept in another dtype than the reference's: 16 bits for floats."""
    for function in code.hosts():
        for node in ast.walk(function.node):
            if not (isinstance(node, ast.Call) and called(node) in ALLOCATORS and isinstance(node.func, ast.Attribute)):
                continue
            given = next((k.value for k in node.keywords if k.arg == "dtype"), None)
            new = LOWER.get(ast.unparse(given) if given else "", "torch.float16")
            if given is None or ast.unparse(given) != new:
                kept = [k for k in node.keywords if k.arg != "dtype"]
                made = ast.Call(node.func, node.args, [*kept, ast.keyword("dtype", ast.parse(new, mode="eval").body)])
                yield code.change(node, ast.unparse(made), f"{short(node)} is {new}")


Kind = Callable[[Code], Iterator[Change]]
KINDS: dict[str, Kind] = {
    "mask_dropped": mask_dropped,
    "other_changed": other_changed,
    "reduction_shortened": reduction_shortened,
    "operation_skipped": operation_skipped,
    "operator_swapped": operator_swapped,
    "precision_lowered": precision_lowered,
    "off_by_one": off_by_one,
    "wrong_stride": wrong_stride,
    "wrong_constant": wrong_constant,
    "missing_initial": missing_initial,
    "wrong_grid": wrong_grid,
    "wrong_dtype": wrong_dtype,
}
