"""What a candidate file is and how it is called, read off its text; nothing is run.

| kind | the file | called |
|---|---|---|
| `program` | what `mtmc optimize` writes: `ModelNew` in its frame around `kernels`, and `SIZES` | `ModelNew.kernels` |
| `class` | any `ModelNew`, as KernelBench has it | `ModelNew(*init)(*inputs)` |
| `function` | a function that takes the reference's inputs, and state of the reference by name after them | directly |
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from mtmc.errors import BadInput
from mtmc.lower.emit import MODEL_NEW

KERNEL_DECORATORS = ("jit", "autotune", "heuristics")  # of Triton: such a function is a kernel, not an entry
NO_INTERPRETER = {  # what a file names that no interpreter on a CPU can run → why
    "load_inline": "it compiles inline CUDA",
    "cpp_extension": "it compiles inline CUDA",
    "RawModule": "it compiles CUDA with cupy",
    "RawKernel": "it compiles CUDA with cupy",
    "CUDAGraph": "it captures CUDA graphs",
    "make_graphed_callables": "it captures CUDA graphs",
}


@dataclass(frozen=True)
class Door:
    """`kind` as above; `function` is the entry's name where the candidate is a function."""

    kind: str = "program"
    function: str = ""

    @property
    def foreign(self) -> bool:
        return self.kind != "program"


def find(source: str, tensors: int, function: str = "") -> Door:
    """The door of a file for a reference that takes so many inputs; `function` names it instead of ModelNew.

    Text that does not parse is taken for a class: importing it gives the verdict. Raises BadInput where there is no entry,
    or more than one.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return Door("class")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if not function and "ModelNew" in classes:
        return Door("program" if _is_program(tree, classes["ModelNew"]) else "class")
    if not function and _bound(tree, "ModelNew"):
        return Door("class")
    return Door("function", _entry(tree, tensors, function))


def needs_gpu(source: str) -> str:
    """Why a file cannot run without a GPU, empty where nothing says so."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {part for alias in node.names for part in alias.name.split(".")}
            names |= set((getattr(node, "module", None) or "").split("."))
    return next((why for name, why in NO_INTERPRETER.items() if name in names), "")


def _is_program(tree: ast.Module, new: ast.ClassDef) -> bool:
    """Whether the class is as `lower.emit` writes it, but for `kernels`: its forward is then known to lead there."""
    base = new.bases[0].id if len(new.bases) == 1 and isinstance(new.bases[0], ast.Name) else "object"
    written = _methods(ast.parse(MODEL_NEW.format(entry=base)).body[0])
    found = _methods(new)
    return "kernels" in found and _bound(tree, "SIZES") and {**found, "kernels": ""} == {**written, "kernels": ""}


def _methods(node: ast.stmt) -> dict[str, str]:
    """Everything in a class body but its docstring, by name."""
    body = [s for s in getattr(node, "body", []) if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return {getattr(s, "name", ast.dump(s)): ast.dump(s) for s in body}


def _bound(tree: ast.Module, name: str) -> bool:
    """Whether an assignment or an import at the top level binds the name."""
    stores = {
        node.id for s in tree.body for node in ast.walk(s) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    imports = {(a.asname or a.name) for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom)) for a in s.names}
    return name in stores | imports


def _entry(tree: ast.Module, tensors: int, wanted: str) -> str:
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and not _is_kernel(node)}
    if wanted:
        if wanted not in found:
            raise BadInput(f"The candidate has no function {wanted} (functions there: {', '.join(found) or 'none'}).")
        return wanted
    fitting = [name for name, node in found.items() if not name.startswith("_") and _takes(node, tensors)]
    if len(fitting) != 1:
        which = (
            f"several functions that take {tensors} inputs ({', '.join(fitting)})" if fitting else "no function that does"
        )
        raise BadInput(f"The candidate has no class ModelNew and {which}: name one with --function.")
    return fitting[0]


def _is_kernel(node: ast.FunctionDef) -> bool:
    named = {getattr(part, "attr", getattr(part, "id", "")) for d in node.decorator_list for part in ast.walk(d)}
    return bool(named & set(KERNEL_DECORATORS))


def _takes(node: ast.FunctionDef, tensors: int) -> bool:
    """Whether so many positional arguments can be given, and no other is required."""
    positional = [*node.args.posonlyargs, *node.args.args]
    required = len(positional) - len(node.args.defaults)
    return required <= tensors and (tensors <= len(positional) or node.args.vararg is not None)
