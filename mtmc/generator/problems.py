"""The stream of problems of a seed: each is a file in KernelBench's form, made from a recipe, sizes and a dtype.

Tensors hold at most 64 MB, so that judging is cheap, and enough work that a kernel takes tens of microseconds on a large
GPU. The same seed gives the same problems, in the same order, on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import count
from typing import Any

from mtmc.generator.layers import Layer
from mtmc.generator.recipes import FLOWS, RECIPES, TABLES
from mtmc.problem import Problem

GRADES = (1, 2, 3, 4, 5)
DTYPES = ("float32", "float32", "float32", "float16", "bfloat16")
LARGEST = 64 << 20  # bytes of one tensor
LEAST = 24 << 20  # bytes of the input of a model without products
FLOPS = (1.5e9, 3e10)  # of all products together
WIDTHS = (256, 384, 512, 640, 768, 1000, 1024, 1280, 1536, 2048, 3000, 3072, 4096, 8192)
LENGTHS = (512, 1000, 1024, 1536, 2048, 3000, 4096, 6144, 8192, 16384, 32768)
BATCHES, TOKENS = (2, 4, 6, 8, 16), (128, 256, 384, 512, 1024)
CHANNELS, EXTENTS = (16, 32, 48, 64, 96), (28, 48, 56, 64, 96, 112, 128)
TRIES = 200


@dataclass(frozen=True)
class Made:
    """A problem as text; `words` are its layers in order."""

    name: str
    source: str
    grade: int
    words: tuple[str, ...]

    @property
    def problem(self) -> Problem:
        return Problem(self.name, self.source, f"{self.name}.py")


@dataclass
class _Draft:
    """A model while it is written: constants with their values, statements, and what the value at hand looks like.

    `flow` is what flows; `width` names the size of its last dimension (of the channels), which is `halved` so many times
    over; `saved` are variable and width where blocks began; `second` tells that there is a second input.
    """

    flow: str
    sizes: dict[str, int]
    width: str
    chance: random.Random
    made: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    saved: list[tuple[str, str]] = field(default_factory=list)
    second: bool = False
    flops: float = 0.0
    largest: int = 0
    halved: int = 1

    @property
    def features(self) -> int:
        return self.sizes[self.width] // self.halved

    @property
    def points(self) -> int:
        """Elements of the value at hand for each feature."""
        dims = {"rows": ("ROWS",), "tokens": ("BATCH", "LENGTH"), "images": ("BATCH", "HEIGHT", "BREADTH")}[self.flow]
        total = 1
        for name in dims:
            total *= self.sizes[name]
        return total


def stream(seed: int = 0, grades: tuple[int, ...] = GRADES) -> Iterator[Made]:
    """Endless: grades in turn, no text twice. What equals a KernelBench problem is still among them: see `twin`."""
    seen: set[str] = set()
    for index in count():
        made = _made(seed, index, grades[index % len(grades)])
        if made.source not in seen:
            seen.add(made.source)
            yield made


def twin(structure: str) -> str:
    """`level/number` of the KernelBench problem with these operators and wiring (`fingerprint.structure`); empty: none."""
    return _kernelbench().get(structure, "")


@cache
def _kernelbench() -> dict[str, str]:
    """Fingerprint of operators and wiring → the first KernelBench problem that has it; from `benchmarks/structures.py`."""
    text = files("mtmc.generator").joinpath("kernelbench.txt").read_text()
    found: dict[str, str] = {}
    for line in text.splitlines():
        operators, _, name = line.split()
        found.setdefault(operators, name)
    return {operators: name for operators, name in found.items() if operators != "-"}


def _made(seed: int, index: int, grade: int) -> Made:
    """Problem number `index`: sizes are drawn until the work is of the right amount."""
    chance = random.Random(f"problem:{seed}:{index}")
    flow = chance.choice(FLOWS)
    recipe = chance.choice(RECIPES[flow][grade])
    dtype = chance.choice(DTYPES)
    drafts = [_written(flow, recipe, chance) for _ in range(TRIES)]
    draft = next((d for d in drafts if _fits(d, 4 if dtype == "float32" else 2)), drafts[-1])
    name = f"g{grade}_{index:04d}_{'_'.join(draft.words[:4])}"
    return Made(name, _file(draft, dtype), grade, tuple(draft.words))


def _fits(draft: _Draft, itemsize: int) -> bool:
    if draft.largest * itemsize > LARGEST:
        return False
    if draft.flops > 0:
        return FLOPS[0] <= draft.flops <= FLOPS[1]
    return draft.largest * itemsize >= LEAST


def _written(flow: str, recipe: str, chance: random.Random) -> _Draft:
    sizes, width = _sizes(flow, chance)
    draft = _Draft(flow, sizes, width, chance)
    draft.largest = draft.points * draft.features
    for letter in recipe:
        if letter == "[":
            draft.saved.append((f"block{len(draft.used)}", draft.width))
            draft.used.append(f"{draft.saved[-1][0]} = x")
        else:
            _add(draft, letter, chance.choice(TABLES[flow][letter]))
    return draft


def _sizes(flow: str, chance: random.Random) -> tuple[dict[str, int], str]:
    """Dimensions of the input, and the name of the one that layers change."""
    if flow == "rows":
        return {"ROWS": chance.choice(LENGTHS), "WIDTH": chance.choice(WIDTHS)}, "WIDTH"
    if flow == "tokens":
        sizes = {"BATCH": chance.choice(BATCHES), "LENGTH": chance.choice(TOKENS), "WIDTH": chance.choice(WIDTHS[:9])}
        return sizes, "WIDTH"
    extent = chance.choice(EXTENTS)
    sizes = {"BATCH": chance.choice((8, 16, 32)), "CHANNELS": chance.choice(CHANNELS), "HEIGHT": extent}
    return {**sizes, "BREADTH": chance.choice((extent, chance.choice(EXTENTS)))}, "CHANNELS"


def _add(draft: _Draft, letter: str, layer: Layer) -> None:
    """One more layer; `S` closes the block that was opened last."""
    number = len(draft.used)
    block = draft.saved.pop() if letter == "S" else draft.saved[-1] if draft.saved else ("x", draft.width)
    target = _target(draft, letter, layer, block[1])
    names: dict[str, Any] = {"x": "x", "n": number, "f": draft.width.lower(), "g": target.lower(), "s": block[0]}
    if draft.halved > 1:
        names["f"] += f" // {draft.halved}"
    draft.made += layer.made.format(**names).splitlines()
    draft.used.append(f"x = {layer.used.format(**names)}")
    draft.words.append(layer.doc)
    draft.second |= letter == "Y"
    _count(draft, letter, layer, target)
    if layer.shape == "half":
        draft.halved *= 2
    elif target != draft.width:
        draft.width, draft.halved = target, 1


def _target(draft: _Draft, letter: str, layer: Layer, before: str) -> str:
    """The size that the last dimension becomes: a new one, or that of the block's beginning."""
    if layer.shape != "new":
        return draft.width
    if letter == "m" or (draft.flow == "images" and draft.saved):
        return before
    name = f"HIDDEN{sum(n.startswith('HIDDEN') for n in draft.sizes) + 1}"
    draft.sizes[name] = draft.chance.choice(CHANNELS if draft.flow == "images" else WIDTHS[:13])
    return name


def _count(draft: _Draft, letter: str, layer: Layer, target: str) -> None:
    """Work of the products, and the largest tensor."""
    after = draft.sizes[target]
    if layer.shape == "new":
        products = 2 if letter == "D" else 9 if layer.doc == "conv3x3" else 1
        draft.flops += 2.0 * products * draft.points * draft.features * after
        draft.largest = max(draft.largest, draft.points * after)
    if letter == "A":
        scores = draft.points * draft.sizes["LENGTH"]
        draft.flops += 2.0 * (3 * draft.points * draft.features**2 + 2 * scores * draft.features)
        draft.largest = max(draft.largest, scores)


def _file(draft: _Draft, dtype: str) -> str:
    shape = {"rows": "ROWS, {w}", "tokens": "BATCH, LENGTH, {w}", "images": "BATCH, {w}, HEIGHT, BREADTH"}[draft.flow]
    first = "CHANNELS" if draft.flow == "images" else "WIDTH"
    drawn = f"torch.randn({shape.format(w=first)}, dtype=DTYPE)"
    arguments = [name for name in draft.sizes if name == first or name.startswith("HIDDEN")]
    needed = [name for name in arguments if any(name.lower() in line for line in draft.made)]
    lines = [
        f'"""{", ".join(word.replace("_", " ") for word in draft.words)}: {dtype}."""',
        "",
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
        "",
        *(f"{name} = {value}" for name, value in draft.sizes.items()),
        f"DTYPE = torch.{dtype}",
        "",
        "",
        "class Model(nn.Module):",
        f"    def __init__({', '.join(['self', *(name.lower() for name in needed)])}):",
        "        super().__init__()",
        *(f"        {line}" for line in draft.made),
        "",
        f"    def forward(self, x{', y' * draft.second}):",
        *(f"        {line}" for line in draft.used),
        "        return x",
        "",
        "",
        "def get_inputs():",
        f"    return [{', '.join([drawn] * (1 + draft.second))}]",
        "",
        "",
        "def get_init_inputs():",
        f"    return [{', '.join(needed)}]",
    ]
    return "\n".join(lines) + "\n"
