"""Units: the text of one kernel with its launcher, made from a template and a primitive node."""

from __future__ import annotations

import re
from typing import Any

from mtmc.frames import operand_offset, pad
from mtmc.graph import Graph, Node
from mtmc.lower.builder import HALF, rename
from mtmc.lower.splice import Filling, Operand, splice

SHARED = (
    "movement.copy",
    "movement.restride",
    "movement.cat",
    "movement.lookup",
    "movement.gather",
    "movement.flip",
)  # templates used as they are


def operands_of(node: Node, graph: Graph) -> tuple[Operand, ...]:
    """The node's inputs with their offsets in its kernel."""
    facts = node.kwargs
    found = []
    for name in node.inputs:
        source = graph[name]
        if source.op == "scalar":
            found.append(Operand(name))
            continue
        assert source.type is not None and node.type is not None
        cast = ".to(tl.float32)" if source.type.dtype in HALF else ""
        full = node.type.shape if "frame_in" not in facts else source.type.shape
        if pad(source.type.shape, len(full)) == full:
            found.append(Operand(name, "index", cast=cast))
            continue
        offset = operand_offset(facts["frame_out"], full, source.type.shape)
        found.append(Operand(name, offset.text, uniform="col" not in offset.coordinates, cast=cast))
    return tuple(found)


def _sizes(node: Node, graph: Graph) -> dict[str, str]:
    """Size arguments that the offsets of broadcast operands need: name -> launcher text."""
    found: dict[str, str] = {}
    if "frame_in" in node.kwargs or "frame_out" not in node.kwargs:
        return found
    assert node.type is not None
    for name in node.inputs:
        source = graph[name].type
        if source is not None and pad(source.shape, len(node.type.shape)) != node.type.shape:
            offset = operand_offset(node.kwargs["frame_out"], node.type.shape, source.shape)
            found |= {k: v.format(shape="out.shape") for k, v in offset.sizes.items()}
    return found


def unit_text(node: Node, graph: Graph) -> str:
    """Kernel and launcher of one unit node, named after it."""
    module, kind = node.kwargs["template"].split(".")
    if module == "contraction":
        return _contraction(node, kind)
    if module == "attention":
        return _attention(node, graph, kind)
    operands = operands_of(node, graph)
    facts = node.kwargs
    lead = _lead(node, graph)
    names = {f"{kind}_kernel": f"{node.name}_kernel", f"launch_{kind}": f"launch_{node.name}", "value": node.name}
    expressions = {
        "SHAPE": facts.get("shape") or _shape(node, graph),
        "DTYPE": _dtype(node, graph, lead),
        "DEVICE": f"{lead}.device",
        "COLS": facts.get("cols") or _tail("out", facts.get("split", 0), len(_type(node).shape)),
        "REDS": facts.get("reds", "1"),
        "ACC": f"tl.{facts.get('acc', 'float32')}",
        "body": facts.get("body", ""),
        "EPSILON": facts.get("eps", "0.0"),
        "WALK": facts.get("walk", ""),
    }
    if module in ("reduction", "arg_reduction", "scan"):
        expressions |= {"identity": facts["identity"], "operand": facts["body"]}
        if "tile" in facts:
            expressions |= dict(zip(("LANES", "WARPS"), map(str, facts["tile"]), strict=True))
        names |= {k: facts[k] for k in ("combine", "finish", "better", "along") if k in facts}
    elif kind == "join":
        means, variances = node.inputs
        names |= {"means": means, "means_ptr": f"{means}_ptr", "variances": variances, "variances_ptr": f"{variances}_ptr"}
    elif module in ("moments", "normalization"):
        expressions |= {"operand": facts["body"]}
    if kind == "nll_row":
        operands, names = operands[:1], names | {f"target{end}": f"{node.inputs[1]}{end}" for end in ("", "_ptr")}
    if module == "normalization" and "finish" in facts:
        expressions["finish"] = rename(facts["finish"], {"operand": facts["body"]})
    filling = Filling(names, expressions, operands, _sizes(node, graph), facts.get("wide", False))
    return splice(module, (f"{kind}_kernel", f"launch_{kind}"), filling)


def _contraction(node: Node, kind: str) -> str:
    left, right = node.inputs
    names = {f"{kind}_kernel": f"{node.name}_kernel", f"launch_{kind}": f"launch_{node.name}", "value": node.name}
    for letter, name in (("a", left), ("b", right)):
        names |= {letter: name, f"{letter}_ptr": f"{name}_ptr"}
        names |= {f"{letter}_stride_{d}": f"{name}_stride_{d}" for d in "bhmkn"}
    expressions = dict(zip(("TILE_M", "TILE_N", "TILE_K"), map(str, node.kwargs.get("tile", ())), strict=False))
    return splice("contraction", (f"{kind}_kernel", f"launch_{kind}"), Filling(names, expressions))


def _attention(node: Node, graph: Graph, kind: str) -> str:
    facts, query = node.kwargs, node.inputs[0]
    names = {f"{kind}_kernel": f"{node.name}_kernel", f"launch_{kind}": f"launch_{node.name}", "value": node.name}
    for letter, name in zip("qkv", node.inputs, strict=False):
        names |= {letter: name, f"{letter}_ptr": f"{name}_ptr"}
        names |= {f"{letter}_stride_{d}": f"{name}_stride_{d}" for d in "bhmnd"}
    operands: list[Operand] = []
    sizes: dict[str, str] = {}
    for name in node.inputs[3:]:
        offset = f"b * {name}_stride_b + h * {name}_stride_h + m * {name}_stride_m + n[None, :] * {name}_stride_n"
        operands.append(Operand(name, offset, cast=".to(tl.float32)" if _type(graph[name]).dtype in HALF else ""))
        sizes |= {f"{name}_stride_{d}": f"{name}.stride({i})" for i, d in enumerate("bhmn")}
    expressions = {"body": facts["body"], "SCALE": facts["scale"], "LAST": facts["last"], "TOTAL": facts["total"]}
    if facts["turned"]:
        expressions |= {"ROW": "(b * M + m) * heads + h", "SHAPE": f"({query}.shape[0], M, heads, E)"}
    else:
        expressions |= {"ROW": "batch * M + m", "SHAPE": f"(*{query}.shape[:3], E)"}
    filling = Filling(names, expressions, tuple(operands), sizes)
    return splice("attention", (f"{kind}_kernel", f"launch_{kind}"), filling)


def _type(node: Node) -> Any:
    assert node.type is not None
    return node.type


def _lead(node: Node, graph: Graph) -> str:
    """The operand whose dtype and device the output takes."""
    tensors = [n for n in node.inputs if graph[n].op != "scalar"]
    return next((n for n in tensors if _type(graph[n]).dtype == _type(node).dtype), tensors[0])


def _dtype(node: Node, graph: Graph, lead: str) -> str:
    dtype = _type(node).dtype
    return f"{lead}.dtype" if _type(graph[lead]).dtype == dtype else f"torch.{dtype}"


def _shape(node: Node, graph: Graph) -> str:
    shape = _type(node).shape
    tensors = [n for n in node.inputs if graph[n].op != "scalar"]
    for name in tensors:
        if _type(graph[name]).shape == shape:
            return f"{name}.shape"
    return f"torch.broadcast_shapes({', '.join(f'{n}.shape' for n in tensors)})"


def _tail(name: str, split: int, rank: int) -> str:
    return " * ".join(f"{name}.shape[{d}]" for d in range(split, rank)) or "1"


def library_names(text: str) -> list[str]:
    """Library functions (`op_…`) that a text calls or passes on."""
    return list(dict.fromkeys(re.findall(r"\bop_\w+", text)))
