"""Emission: the primitive graph as the text of a program file (see docs/architecture.md for its parts)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from mtmc.graph import Graph, Node, Ref, TorchConst
from mtmc.lower.normalize import Normalized
from mtmc.lower.splice import library, template_text
from mtmc.lower.units import SHARED, library_names, operands_of, unit_text

IMPORTS = """import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
"""
MOVEMENT = {  # what each shared unit brings in, in order
    "copy": ("copy_kernel", "copy_into", "launch_copy"),
    "restride": ("copy_kernel", "copy_into", "launch_restride"),
    "cat": ("copy_kernel", "copy_into", "launch_cat"),
    "lookup": ("lookup_kernel", "launch_lookup"),
    "gather": ("gather_kernel", "launch_gather"),
    "flip": ("flip_kernel", "launch_flip"),
}


@dataclass(frozen=True)
class Reference:
    """The embedded reference: its text, its class name, and the plain attributes (`path.name` -> value) its modules have."""

    text: str
    entry: str
    config: dict[str, Any]


@dataclass
class _Units:
    """Unit texts by launcher name; equal kernels are defined once."""

    texts: dict[str, str]
    launchers: dict[str, str]  # node -> launcher
    shared: list[str]


def _units(graph: Graph, leaders: dict[str, str]) -> _Units:
    units = _Units({}, {}, [])
    for node in graph.nodes:
        if node.op != "unit":
            continue
        module, kind = node.kwargs["template"].split(".")
        if module == "movement":
            units.shared.append(kind)
            units.launchers[node.name] = f"launch_{kind}"
            continue
        leader = leaders.get(node.name, node.name)
        if leader not in units.texts or _pattern(node, graph) != _pattern(graph[leader], graph):
            leader = node.name
            units.texts[leader] = unit_text(node, graph)
        units.launchers[node.name] = f"launch_{leader}"
    return units


def _leaders(graph: Graph) -> dict[str, str]:
    """For each unit the first one that the same kernel serves: equal but for the names, on tensors of equal types.

    Reductions of what unlike kernels make stay apart, since each will take in its own.
    """
    seen: dict[Any, str] = {}
    found = {}
    for node in graph.nodes:
        if node.op == "unit" and node.kwargs["template"] not in SHARED:
            types = tuple(graph[name].type for name in (node.name, *node.inputs))
            made = [_pattern(graph[name], graph) for name in node.inputs if _made_before(node, graph[name])]
            found[node.name] = seen.setdefault((_pattern(node, graph), types, *made), node.name)
    return found


def _made_before(node: Node, operand: Node) -> bool:
    """Whether a reduction's operand is made by an elementwise kernel."""
    facts = node.kwargs["template"], operand.kwargs.get("template", "")
    return operand.op == "unit" and facts[0].startswith("reduction.") and facts[1].startswith("pointwise.")


def _pattern(node: Node, graph: Graph) -> str:
    """Equal for two units whose kernels have the same text but for the names of node and operands."""
    names = {name: f"x{i}" for i, name in enumerate(node.inputs)}
    facts = {k: v for k, v in node.kwargs.items() if k not in ("results", "scan")}
    facts = {k: _renamed(v, names) if isinstance(v, str) else v for k, v in facts.items()}
    operands = () if "letters" in facts else operands_of(node, graph)
    types = [graph[name].type for name in (node.name, *node.inputs)]
    kinds = [found.dtype if found else "" for found in types]
    return repr((sorted(facts.items()), [replace(o, name=names[o.name]) for o in operands], kinds))


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found.group(), found.group()), text)


def _statement(node: Node, graph: Graph, units: _Units) -> list[str]:
    if node.op == "state":
        return [f"{node.name} = {_attribute(node.target)}"]
    if node.op in ("view", "item"):
        return [f"{node.name} = {node.kwargs['call']}"]
    if node.op == "constant":
        assert node.type is not None
        return [f"{node.name} = torch.tensor({node.args[0]!r}, dtype=torch.{node.type.dtype}, device={_device(graph)})"]
    if node.op == "torch":
        return [f"{node.name} = {_torch_call(node, graph)}"]
    if node.op != "unit":
        return []
    args = [f'SIZES["{n}"]' if graph[n].op == "scalar" else n for n in node.inputs]
    if "parts" in node.kwargs:
        args = [f"({', '.join(node.kwargs['parts'])},)"]
    args += [repr(v) for v in node.kwargs.get("extra", ())]
    results = ", ".join(node.kwargs.get("results", (node.name,)))
    return [f"{results} = {units.launchers[node.name]}({', '.join(args)})"]


def _attribute(path: str) -> str:
    """`self.layers[0].weight` for `layers.0.weight`: numbered parts are items of a Sequential or ModuleList."""
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))


def _device(graph: Graph) -> str:
    first = next((n for n in graph.nodes if n.op == "input" and n.type), None) or next(
        n for n in graph.nodes if n.op == "state"
    )
    return f"{first.name}.device"


# A view that stays a PyTorch call may meet strides that eager would have made contiguous before.
RESHAPED = dict.fromkeys(("aten.view.default", "aten._unsafe_view.default"), "aten.reshape.default")


def _torch_call(node: Node, graph: Graph) -> str:
    facts = node.kwargs
    used = node.kwargs["sizes"]

    def text(value: Any, key: str) -> str:
        if key in used:
            return f'SIZES["{key}"]'
        return _plain(value, graph)

    key = facts["key"]
    args = [text(v, f"{key}.{i}") for i, v in enumerate(node.args)]
    args += [f"{k}={text(v, f'{key}.{k}')}" for k, v in facts["kwargs"].items()]
    return f"torch.ops.{RESHAPED.get(facts['op'], facts['op'])}({', '.join(args)})"


def _plain(value: Any, graph: Graph) -> str:
    if isinstance(value, Ref):
        return value.name
    if isinstance(value, TorchConst):
        return _device(graph) if value.text == "device" else value.text
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_plain(v, graph) for v in value)}]"
    if isinstance(value, float) and not isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _result(value: Any) -> str:
    if isinstance(value, Ref):
        return value.name
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_result(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return f"({', '.join(_result(v) for v in value)},)"
    if isinstance(value, list):
        return f"[{', '.join(_result(v) for v in value)}]"
    return repr(value)


def _kernels_method(graph: Graph, units: _Units) -> list[str]:
    inputs = [n.name for n in graph.nodes if n.op == "input"]
    lines = [f"    def kernels(self, {', '.join(inputs)}):" if inputs else "    def kernels(self):"]
    lines.append('        """The fast path: one call a statement, no checks."""')
    for node in graph.nodes:
        lines += [f"        {s}" for s in _statement(node, graph, units)]
    lines += [f"        {_attribute(path)}.copy_({name})" for path, name in graph.mutations.items()]
    return [*lines, f"        return {_result(graph.output)}"]


def _supports(graph: Graph) -> list[str]:
    """Text of `supports`. Shapes must be the captured ones: what broadcasts, and sizes in views, was read off them."""
    inputs = [n for n in graph.nodes if n.op == "input"]
    tensors = [n.name for n in inputs if n.type is not None]
    conditions = "\n        and ".join(_condition(node) for node in inputs)
    takes = [f"    {', '.join(n.name for n in inputs)}, = inputs", f"    if not ({conditions}):", "        return False"]
    return [
        "def supports(model, *inputs):",
        '    """Where the kernels hold. Elsewhere, and for gradients or autocast, the reference computation runs."""',
        f"    if not model.unchanged or len(inputs) != {len(inputs)}:",
        "        return False",
        *(takes if inputs else []),
        f"    tensors = ({''.join(f'{name}, ' for name in tensors)}*model.parameters(), *model.buffers())",
        "    if torch.is_autocast_enabled('cuda') or torch.is_grad_enabled() and any(t.requires_grad for t in tensors):",
        "        return False",
        "    device = tensors[0].device",
        "    return device.type == 'cuda' and all(t.device == device for t in tensors)",
    ]


def _condition(node: Node) -> str:
    """What `supports` asks of one input."""
    name, type = node.name, node.type
    if type is None:
        return f"not isinstance({name}, torch.Tensor) and {name} == {node.args[0]!r}"
    laid = f"{name}.is_contiguous()" if type.contiguous else f"{name}.stride() == {type.strides!r}"
    tensor = f"isinstance({name}, torch.Tensor) and {name}.dtype == torch.{type.dtype}"
    return f"{tensor} and {name}.shape == {type.shape!r} and {laid}"


def _config_lines(reference: Reference) -> list[str]:
    return [
        "# Plain attributes of the reference's modules that are written into the kernels as numbers.",
        f"CONFIG = {_dict_text(reference.config)}",
        "",
        "",
        "def config(model):",
        '    """The same attributes of a live model."""',
        "    found = {}",
        "    for path, module in model.named_modules():",
        "        for name, value in vars(module).items():",
        "            if not name.startswith('_') and isinstance(value, (bool, int, float, str, tuple, type(None))):",
        "                found[f'{path}.{name}'.lstrip('.')] = value",
        "    found.pop('unchanged', None)",
        "    found['dtypes'] = tuple(str(t.dtype) for t in (*model.parameters(), *model.buffers()))",
        "    found['shapes'] = tuple(tuple(t.shape) for t in (*model.parameters(), *model.buffers()))",
        "    found['strides'] = tuple(t.stride() for t in (*model.parameters(), *model.buffers()))",
        "    return found",
    ]


def _dict_text(values: dict[str, Any]) -> str:
    if not values:
        return "{}"
    return "{\n" + "".join(f"    {k!r}: {_plain_value(v)},\n" for k, v in values.items()) + "}"


def _plain_value(value: Any) -> str:
    return f'float("{value}")' if isinstance(value, float) and not isfinite(value) else repr(value)


MODEL_NEW = '''class ModelNew({entry}):
    """The reference with its forward computed by the kernels above, where they hold."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.unchanged = config(self) == CONFIG

    def train(self, mode=True):
        super().train(mode)
        self.unchanged = config(self) == CONFIG
        return self

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.unchanged = config(self) == CONFIG
        return self

    def forward(self, *inputs, **named):
        if named or not supports(self, *inputs):
            return super().forward(*inputs, **named)
        return self.kernels(*inputs)
'''


def program_text(name: str, normalized: Normalized, reference: Reference, like: Graph | None = None) -> str:
    """The whole file. Nodes share kernels as those of the graph `like` do, which is this one at another size."""
    graph = normalized.graph
    units = _units(graph, _leaders(like or graph))
    movement = [template_text("movement", f) for f in dict.fromkeys(f for k in units.shared for f in MOVEMENT[k])]
    bodies = [*units.texts.values(), *movement]
    devices = [library()[n] for n in _closure(library_names("\n".join(bodies)))]
    parts = [
        f'"""{name}: Triton kernels for the model below. Needs torch and triton only."""',
        IMPORTS,
        reference.text.strip(),
    ]
    parts += [*devices, *movement, *units.texts.values()]
    parts += [
        "# Sizes that no kernel can read from a tensor.\n" + f"SIZES = {_dict_text(normalized.sizes)}",
        "\n".join(_config_lines(reference)),
        "\n".join(_supports(graph)),
        MODEL_NEW.format(entry=reference.entry) + "\n" + "\n".join(_kernels_method(graph, units)),
    ]
    return "\n\n\n".join(p.strip("\n") for p in parts) + "\n"


def _closure(names: Sequence[str]) -> list[str]:
    """Library functions with those they call, callees first."""
    found: list[str] = []

    def visit(name: str) -> None:
        for inner in library_names(library()[name]):
            if inner != name:
                visit(inner)
        if name not in found:
            found.append(name)

    for name in names:
        visit(name)
    return found


def fallback_text(name: str, reference: Reference, reason: str) -> str:
    """A program for a model that cannot be captured: the reference computation, and why."""
    parts = [
        f'"""{name}: not captured ({reason}) The reference computation runs."""',
        IMPORTS,
        reference.text.strip(),
        "SIZES = {}",
        f"class ModelNew({reference.entry}):\n"
        '    """The reference, unchanged."""\n\n'
        "    def kernels(self, *inputs):\n"
        "        return super().forward(*inputs)\n",
    ]
    return "\n\n\n".join(p.strip("\n") for p in parts) + "\n"
