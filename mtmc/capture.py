"""Capture: the operations of a model as a Graph, through `torch.export` on meta tensors at real size.

The graph is functional and un-decomposed (`linear`, `layer_norm`, attention stay whole); operations in place became
functional ones, and buffers that change (BatchNorm's statistics) stand in `Graph.mutations`.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from mtmc.errors import BadInput
from mtmc.graph import Graph, Node, Ref, TensorType, TorchConst, walk
from mtmc.meta import recurrent_shapes
from mtmc.problem import Instance, Problem, instantiate, user_code

if TYPE_CHECKING:
    import torch
    from torch import fx
    from torch.export import ExportedProgram
    from torch.export.graph_signature import InputSpec

Literals = list[tuple[Any, Any]]  # a tensor made inside `forward`, and the Python data it was made from
LIFTED = "lifted_tensor_"  # export's name for such a tensor
LITERAL_LIMIT = 64  # elements of a constant tensor that are written out in a program


@dataclass(frozen=True)
class Capture:
    """`graph` is None when the model cannot be exported whole; `reason` then says why, in one sentence."""

    graph: Graph | None
    reason: str = ""


class _Refused(Exception):
    """The export exists but a program made from it would be wrong; the text says why."""


def capture(problem: Problem) -> Capture:
    """Graph of the problem's model. Raises BadInput when the user's file fails, or returns what is not a tensor."""
    instance = instantiate(problem, "meta")
    try:
        with user_code("Export"):
            exported, literals = _export(instance)
        graph = _graph(exported, _input_names(instance), literals)
    except (BadInput, _Refused) as error:
        return Capture(None, str(error))
    check_outputs(graph.output)
    if any(graph[ref.name].type is None for ref in walk(graph.output)):
        raise BadInput("The model's output holds a number that is computed from a tensor; return the tensor itself.")
    try:
        _refuse_side_effects(instance)
    except (BadInput, _Refused) as error:
        return Capture(None, str(error))
    return Capture(graph)


def check_outputs(value: Any, where: str = "output") -> None:
    """Raise BadInput unless every leaf of a model's (nested) output is a tensor, a `Ref` or None."""
    import torch

    if value is None or isinstance(value, (torch.Tensor, Ref)):
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_outputs(item, f"{where}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for position, item in enumerate(value):
            check_outputs(item, f"{where}[{position}]")
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            check_outputs(getattr(value, field.name), f"{where}.{field.name}")
    else:
        raise BadInput(f"The model's {where} is not a tensor but {type(value).__name__}.")


def _export(instance: Instance) -> tuple[ExportedProgram, Literals]:
    import torch
    from torch.overrides import TorchFunctionMode

    literals: Literals = []

    class Recorder(TorchFunctionMode):
        """Remembers what the model writes in `torch.tensor(…)`: a meta tensor does not hold its values."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func in (torch.tensor, torch.as_tensor) and args:
                literals.append((result, args[0]))
            return result

    with _quiet(), torch.no_grad(), recurrent_shapes():
        with Recorder():
            exported = torch.export.export(instance.model, instance.inputs, strict=False)
        return exported.run_decompositions({}), literals


@contextmanager
def _quiet() -> Iterator[None]:
    """What export logs and prints of a failure is in the exception as well."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _input_names(instance: Instance) -> list[str]:
    """The parameter of `forward` that each input binds to."""
    bound = inspect.signature(instance.model.forward).bind(*instance.inputs)
    names: list[str] = []
    for name, value in bound.arguments.items():
        many = bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{name}_{position}" for position in range(len(value))] if many else [name]
    return names


def _graph(exported: ExportedProgram, input_names: list[str], literals: Literals) -> Graph:
    from torch.export.graph_signature import InputKind, OutputKind

    signature = exported.graph_signature
    if signature.user_inputs_to_mutate:
        raise _Refused(f"The model changes its input {', '.join(signature.user_inputs_to_mutate.values())} in place.")
    if sum(spec.kind is InputKind.USER_INPUT for spec in signature.input_specs) != len(input_names):
        raise _Refused("The model takes a nested input.")
    kept = [
        node for node in exported.graph.nodes if str(node.target) not in ("aten._assert_tensor_metadata.default", "output")
    ]
    specs = iter(signature.input_specs)
    names = iter(input_names)
    constants = {name: _literal(tensor, literals) for name, tensor in exported.constants.items() if LIFTED in name}
    nodes = tuple(
        _placeholder(node, next(specs), names, constants) if node.op == "placeholder" else _operation(node) for node in kept
    )
    returned = [_value(value) for value in exported.graph.output_node().args[0]]
    leaves = returned[sum(spec.kind is not OutputKind.USER_OUTPUT for spec in signature.output_specs) :]
    assert exported.call_spec.out_spec is not None
    output = _plain(exported.call_spec.out_spec.unflatten(leaves))
    return Graph(nodes, output, {target: name for name, target in signature.buffers_to_mutate.items()})


def _placeholder(node: fx.Node, spec: InputSpec, names: Iterator[str], constants: dict[str, Any]) -> Node:
    from torch.export.graph_signature import InputKind

    tensor = node.meta["val"]
    type_ = _type(tensor)
    if spec.kind is InputKind.USER_INPUT:
        return Node(node.name, "input", () if type_ else (_value(tensor),), type=type_, target=next(names))
    if spec.target in constants:
        return Node(node.name, "constant", (constants[spec.target],), type=type_)
    assert spec.target is not None
    return Node(node.name, "state", type=type_, target=spec.target)


def _literal(tensor: Any, literals: Literals) -> Any:
    """Values of a tensor that `forward` makes from Python numbers."""
    import torch

    if tensor.numel() <= LITERAL_LIMIT:
        if not tensor.is_meta:
            return _value(tensor.tolist())
        for made, data in literals:
            if made is tensor and not isinstance(data, torch.Tensor):
                return _value(torch.tensor(data, dtype=tensor.dtype).tolist())
    raise _Refused(f"The model makes a constant tensor of {tensor.numel()} elements when it runs.")


def _operation(node: fx.Node) -> Node:
    import torch

    getitem = node.target is operator.getitem
    if node.op != "call_function" or not (getitem or isinstance(node.target, torch._ops.OpOverload)):
        raise _Refused(f"The model's graph has a part that is not a plain operation ({node.target}).")
    kwargs = {name: _value(value) for name, value in node.kwargs.items()}
    op = "getitem" if getitem else str(node.target)
    return Node(node.name, op, tuple(map(_value, node.args)), kwargs, _type(node.meta.get("val")))


def _value(value: Any) -> Any:
    """An argument as plain data."""
    import torch
    from torch import fx

    if isinstance(value, fx.Node):
        return Ref(value.name)
    if isinstance(value, (tuple, list)):
        return tuple(map(_value, value))
    if isinstance(value, torch.device):
        return TorchConst("device" if value.type == "meta" else repr(value).replace("device", "torch.device"))
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return TorchConst(str(value))
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    raise _Refused(f"The model's graph has a value of type {type(value).__name__}.")


def _type(tensor: Any) -> TensorType | None:
    import torch

    if not isinstance(tensor, torch.Tensor):
        return None
    if not all(isinstance(size, int) for size in tensor.shape):
        raise _Refused("The shape of a tensor depends on the values of another.")
    strides = tuple(tensor.stride()) if tensor.layout is torch.strided else ()
    return TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), strides)


def _plain(value: Any) -> Any:
    """Nested containers as plain tuples, lists and dicts (a named tuple becomes a tuple)."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return tuple(_plain(item) for item in value) if isinstance(value, tuple) else value


def _refuse_side_effects(instance: Instance) -> None:
    """Run the model once on meta: export undoes what `forward` does to attributes, so the graph cannot show it."""
    import torch

    before = _attributes(instance.model)
    with user_code("Running the model on meta tensors"), torch.no_grad(), recurrent_shapes():
        instance.model(*instance.inputs)
    after = _attributes(instance.model)
    for path in {**before, **after}:
        if path not in before or path not in after or before[path][0] != after[path][0]:
            raise _Refused(f"The model changes its attribute {path} when it runs.")


def _attributes(model: torch.nn.Module) -> dict[str, tuple[Any, Any]]:
    """Dotted path → mark and value (kept alive, so that its id stays its own) of every plain attribute."""
    return {
        f"{path}.{name}".lstrip("."): (_mark(value), value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if not name.startswith("_")
    }


def _mark(value: Any) -> Any:
    """What differs once a value was changed: contents of scalars and containers, identity and version of tensors."""
    import torch

    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, Mapping):
        return [(key, _mark(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [_mark(item) for item in value]
    return value if isinstance(value, (int, float, str)) else id(value)
