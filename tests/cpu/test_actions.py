"""Every kind of action: its edit as text, its figures at the gate, what it computes, when it is refused, how it compiles.

MTMC_GOLDEN=write pytest tests/cpu/test_actions.py      rewrites tests/golden/actions: read the diff
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from actions_cases import FULL, GOLDEN, LINEAR, MODELS, PLANS, action_of, context, edits, lowered, plan, problem
from processes import PATIENCE, environment

from mtmc import actions
from mtmc.action import Action, Edit
from mtmc.actions import RULES, STOP
from mtmc.actions.knobs import ATTENTION_TILES, PRODUCT_TILES, STAGES, TILES, WARPS
from mtmc.capture import capture
from mtmc.edit import LIMIT
from mtmc.errors import Illegal
from mtmc.hardware_profiles import load
from mtmc.judge import candidate
from mtmc.judge.standin import stand_in
from mtmc.lower import lower
from mtmc.problem import instantiate
from mtmc.verdict import Accuracy, CompileError, Infra, Launch, Timeout, Timing, Verdict, Verified, Wrong

SCRIPT = Path(__file__).with_name("actions_checks.py")
GOLDENS = Path(__file__).parents[1] / "golden/actions"
EXAMPLES = Path(actions.__file__).parent / "examples"
KINDS = list(dict.fromkeys(rule.kind for rule in RULES))
FAMILIES = ("tiling", "fusion", "pipelining", "reorder")
SHARED = CompileError("too much", "shared_memory")
SLOW = Timeout("verify", 10.0)
PLAIN = Infra("")
WRONG = Wrong("one element differs")
REPAIRS: dict[str, Verdict] = {"repair_shared": SHARED, "repair_spill": SLOW, "repair_mask": WRONG, "repair_sum": WRONG}


def last_edit(name: str) -> Edit:
    return edits(PLANS[name])[-1]


def proposed(name: str, verdict: Verdict = PLAIN) -> dict[str, Action]:
    """What is proposed where the last action of a plan is chosen, by id."""
    before = last_edit(name).before
    return {action.id: action for action in actions.propose(context(PLANS[name].model, before), verdict)}


def change(edit: Edit) -> str:
    """The functions that an edit touches, as a diff; those brought in or removed whole are named."""
    text = []
    for name in dict.fromkeys((*edit.before.regions, *edit.after.regions)):
        old, new = (p.text(name).splitlines() if name in p.regions else [] for p in (edit.before, edit.after))
        if old and new:
            text += list(difflib.unified_diff(old, new, name, name, lineterm="", n=2))
        elif old != new:
            text += [f"{'removed' if old else 'brought in'}: {name}"]
    figures = f"{edit.added} lines added, {edit.removed} removed"
    return "\n".join([figures, *(f"assertion: {a}" for a in edit.assertions), *text]) + "\n"


# -- the table -----------------------------------------------------------------------------------------------------------


def test_kinds_are_in_a_family_and_every_family_has_members():
    families = Counter(rule.family for rule in RULES)
    assert all(families[family] >= 3 for family in FAMILIES)
    assert set(families) <= {*FAMILIES, "library", "repair"}
    assert STOP.family == "stop"


def test_every_kind_is_a_module_with_an_example_and_a_golden_edit():
    folder = EXAMPLES.parent
    assert sorted(path.stem for path in EXAMPLES.iterdir()) == sorted(KINDS)
    for kind in KINDS:
        assert (folder / f"{kind}.py").read_text().startswith(f'"""{kind}: ')
    assert sorted(GOLDEN) == sorted(KINDS) == sorted(path.stem for path in GOLDENS.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_is_short_and_a_part_of_the_golden_edit(kind):
    text = (EXAMPLES / f"{kind}.md").read_text()
    golden = (GOLDENS / f"{kind}.diff").read_text().splitlines()
    assert text.startswith(f"# {kind}\n")
    assert 10 <= len(text.splitlines()) <= 25
    shown = re.search(r"```diff\n(.*)```", text, re.DOTALL)
    assert shown
    lines = [line for line in shown[1].splitlines() if not line.startswith("@@ ")]
    assert any(line[0] == "+" for line in lines)
    assert [line for line in lines if line not in golden] == []
    assert proposed(kind, REPAIRS.get(kind, PLAIN))[PLANS[kind].ids[-1]].sentence in text


@pytest.mark.parametrize("kind", KINDS)
def test_the_golden_edit(kind):
    path, text = GOLDENS / f"{kind}.diff", change(last_edit(kind))
    if os.environ.get("MTMC_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


# -- proposals -----------------------------------------------------------------------------------------------------------


def spilled(model: str) -> Verified:
    names = lowered(model).program.units
    launches = tuple(Launch(f"{name}_kernel", (1, 1, 1), 4, 1, 255, 64, 0) for name in names)
    return Verified(Timing("measured", 2.0, 1.0, 2.0, 1.9, 2.1), Accuracy(0.0, 0.0), launches)


@pytest.mark.parametrize("model", [pytest.param(m, marks=[pytest.mark.slow] * (n % 3 > 0)) for n, m in enumerate(MODELS)])
def test_proposals_are_told_apart_and_read_as_sentences(model):
    first = lowered(model).program
    later = next(last_edit(name).after for name, plan in PLANS.items() if plan.model == model)
    cases = [(first, "h100", "tf32", PLAIN), (first, "v100", "strict", SLOW), (first, "mi300x", "strict", spilled(model))]
    for program, gpu, precision, verdict in [*cases, (later, "h100", "strict", SHARED)]:
        found = actions.propose(context(model, program, gpu, precision), verdict)
        assert found[-1] is STOP
        assert len({action.id for action in found}) == len({action.sentence for action in found}) == len(found)
        for action in found[:-1]:
            assert action.kind in KINDS
            assert action.sentence.endswith(".") and len(action.sentence) <= 160, action.sentence
        assert any(action.family == "repair" for action in found) or verdict in (PLAIN, SHARED)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_golden_plan_does_is_proposed(kind):
    assert PLANS[kind].ids[-1] in proposed(kind, REPAIRS.get(kind, PLAIN))


@pytest.mark.parametrize("kind", sorted(REPAIRS))
def test_repairs_answer_their_verdict_only_and_come_first(kind):
    assert not any(action.kind == kind for action in proposed(kind).values())
    first = next(iter(proposed(kind, REPAIRS[kind]).values()))
    assert first.kind == kind and first.family == "repair"


def test_knobs_propose_within_their_domain():
    for knob in (WARPS, STAGES, *TILES.values()):
        for value in range(knob.low, min(knob.high, 64) + 1):
            assert all(new in knob and new != value for new in knob.neighbours(value))
        assert knob.high * 2 not in knob and 0 not in knob
    for m, n, k, warps, stages in (*PRODUCT_TILES, *((m, n, 16, *rest) for m, n, *rest in ATTENTION_TILES)):
        assert m in TILES["BLOCK_M"] and n in TILES["BLOCK_N"] and k in TILES["BLOCK_K"]
        assert warps in WARPS and stages in STAGES


def test_hardware_decides_what_is_proposed():
    def kinds(gpu: str) -> set[str]:
        program = edits(plan("aligned", "split_fp16(matmul)"))[-1].after if gpu == "h100" else None
        return {action.kind for action in actions.propose(context("aligned", program, gpu), PLAIN)}

    assert "tensor_descriptors" in kinds("h100")
    assert not {"tensor_descriptors"} & kinds("a100")
    assert not {"split_fp16", "dot_precision", "stages", "product_tile"} & kinds("v100")
    assert not {"split_fp16", "dot_precision"} & kinds("mi300x")


# -- the gate's figures --------------------------------------------------------------------------------------------------

ASSERTS = {
    "fuse_epilogue": "assert p_fc_bias.is_contiguous()",
    "fuse_siblings": "assert x.is_contiguous() and z.is_contiguous()",
    "fuse_prologue": "assert sub.is_contiguous() and x.is_contiguous()",
    "split_fp16": "torch.float32, 'float32 products only'",
    "split_attention": "torch.float32, 'float32 products only'",
    "dot_precision": "torch.float32, 'float32 products only'",
    "split_reduction": "SPLIT must be a power of two",
    "split_k": "SPLIT must be a power of two",
    "repair_sum": "SPLIT must be a power of two",
    "single_block": "tl.device_assert(cols <= BLOCK",
    "tensor_descriptors": "assert x_hi.stride(0) % 8 == 0",
    "product_tile": "BLOCK_K must be a power of two",
    "tile_size": "BLOCK must be a power of two",
    "swizzle": "tl.static_assert(GROUP > 0",
    "tile_shape": "RED must be a power of two",
    "repair_spill": "BLOCK must be a power of two",
}
LIBRARY = {
    "split_fp16": ("op_fp16_scale", "op_fp16_rest", "split_fp16_kernel", "split_fp16", "op_fp16x3", "op_dot_fp16x3"),
    "split_attention": (
        "op_fp16_scale",
        "op_fp16_rest",
        "split_fp16_kernel",
        "split_fp16",
        "op_fp16_pair",
        "op_load_pair",
        "op_fp16x3",
        "op_dot_fp16x3",
        "op_dot_share_fp16x3",
    ),
    "split_reduction": ("combine_add_kernel", "launch_combine_add"),
    "split_k": ("combine_products_kernel", "launch_combine_products"),
    "repair_sum": ("combine_products_kernel", "launch_combine_products"),
    "swizzle": ("op_grouped",),
}


def _plan(number: int, name: str) -> object:
    """Each kind, and one longer plan in three; the others with `-m slow`."""
    return pytest.param(name, marks=[pytest.mark.slow] * (name not in KINDS and number % 3 > 0))


CHOSEN = pytest.mark.parametrize("name", [_plan(number, name) for number, name in enumerate(PLANS)])


@CHOSEN
def test_edits_pass_the_gate(name):
    for edit in edits(PLANS[name]):
        assert 0 < edit.changed_lines <= LIMIT
        assert edit.before.key != edit.after.key


@pytest.mark.parametrize("kind", KINDS)
def test_edits_say_what_they_assume_and_bring_in(kind):
    edit = last_edit(kind)
    assert any(ASSERTS.get(kind, "") in assertion for assertion in edit.assertions) or kind not in ASSERTS
    assert edit.library == LIBRARY.get(kind, ())
    assert not edit.assertions or kind in ASSERTS


# -- results -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(request, tmp_path_factory) -> dict[str, str | None]:
    """What is wrong with the program of each chosen plan, run in the interpreter."""
    test = test_the_program_computes_what_eager_does
    chosen = [item.callspec.params["name"] for item in request.session.items if getattr(item, "function", None) is test]
    programs = {name: (last_edit(name).after.source, lowered(PLANS[name].model).sizes[0]) for name in chosen}
    file = tmp_path_factory.mktemp("plans") / "programs"
    file.write_text(repr(programs))
    command = [sys.executable, str(SCRIPT), str(file)]
    done = subprocess.run(command, env=environment(TRITON_INTERPRET="1"), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_programs_fit_the_small_size():
    assert all(lowered(model).sizes[0] is not None for model in MODELS)


@CHOSEN
def test_the_program_computes_what_eager_does(name, results):
    assert results[name] is None


# -- refusals ------------------------------------------------------------------------------------------------------------

REFUSED = {
    "another kind": ("chain", "fuse_epilogue(mul, guest=gelu)", "another kernel"),
    "two readers": ("chain", "fuse_epilogue(mul_1, guest=gelu)", "other readers"),
    "another reader": ("rms_norm", "fuse_epilogue(mul, guest=div)", "another kernel"),
    "not elementwise": ("sum", "fuse_epilogue(mul, guest=sum_1)", "not elementwise"),
    "no rows": ("chain", "fuse_epilogue(mul, guest=add)", "has no rows"),
    "no such value": ("sum", "fuse_prologue(sum_1, guest=mul, value=sub)", "does not read sub once"),
    "another kernel before another call": ("unlike", "fuse_prologue(cumsum, guest=mul, value=mul)", "another kernel"),
    "the guest of both calls": ("unlike", "fuse_epilogue(cumsum, guest=sub)", "share a guest"),
    "a prologue of a product": ("linear", "fuse_prologue(linear_product, guest=gelu, value=x)", "does not read x once"),
    "a triangle of shifted places": ("triangle", "fuse_epilogue(cumsum_exclusive, guest=tril)", "counts otherwise"),
    "no attention": ("linear", "split_attention(linear_product, tile=0)", "not an fp32 attention"),
    "no such tile of pairs": ("attention", "split_attention(attention, tile=4)", "4 tiles"),
    "no such tile of an attention": ("attention", "product_tile(attention, tile=9)", "5 tiles"),
    "rows of another length": ("middle", "fuse_second_pass(sum_1, guest=sqrt)", "same rows"),
    "its own sibling": ("siblings", "fuse_siblings(sum_1, value=sum_1)", "not two calls"),
    "a sibling of columns": ("share", "fuse_siblings(sum_1, value=div)", "not a reduction of rows"),
    "no three passes": ("sum", "merge_passes(sum_1)", "not a pass for each"),
    "not fp32": ("half", "split_fp16(linear_product)", "not a plain fp32 product"),
    "not a product": ("sum", "split_fp16(sum_1)", "not a plain fp32 product"),
    "looser than allowed": ("linear", "dot_precision(linear_product, precision=tf32)", "not allowed at precision strict"),
    "no fp32 dot": ("half", "dot_precision(linear_product, precision=tf32x3)", "no fp32 dot"),
    "not a sum": ("softmax", "split_reduction(softmax, parts=16)", "not a sum"),
    "not a matrix product": ("batched", "split_k(bmm, parts=4)", "not a product of two matrices"),
    "no loop": ("chain", "single_block(mul, value=256)", "no loop"),
    "descriptors of pointers": ("aligned", "tensor_descriptors(matmul)", "another form"),
    "no such tile": ("linear", "product_tile(linear_product, tile=99)", "7 tiles"),
    "out of its domain": ("chain", "tile_size(mul, constant=BLOCK, value=3)", "BLOCK cannot be 3"),
    "no such constant": ("chain", "tile_size(mul, constant=RED, value=8)", "no constant RED"),
    "too large": ("linear", "tile_size(linear_product, constant=BLOCK_M, value=512)", "cannot be 512"),
    "three warps": ("chain", "warps(mul, value=3)", "cannot be 3"),
    "nine stages": ("linear", "stages(linear_product, value=9)", "9 stages"),
    "no plain loop": ("chain", "loop_stages(mul, value=2)", "no plain loop"),
    "nothing to unroll": ("chain", "unroll(mul, value=2)", "no plain loop"),
    "no order of tiles": ("sum", "swizzle(sum_1, group=8)", "another form"),
    "nothing streamed": ("linear", "eviction(linear_product)", "nothing is streamed"),
    "one extent": ("sum", "tile_shape(sum_1, red=4, block=64)", "no tile of two extents"),
    "not the library's": ("sum", "library(sum_1)", "not a product"),
    "one stage": ("linear", "repair_shared(linear_product, what=num_stages)", "one stage only"),
    "masked already": ("chain", "repair_mask(mul)", "has a mask"),
    "no such unit": ("chain", "warps(nowhere, value=2)", "no nowhere_kernel"),
}
LATER = {
    "behind a split": ("loss", "split_reduction(mean_sum, parts=16)", "fuse_epilogue(mean_sum, guest=mean_)", "parts"),
    "split twice": ("product", "split_k(matmul, parts=4)", "split_k(matmul, parts=4)", "split already"),
    "split behind": ("sum", "fuse_epilogue(sum_1, guest=sqrt)", "split_reduction(sum_1, parts=16)", "fused behind"),
    "keys split twice": (
        "attention", "split_attention(attention, tile=0)", "split_attention(attention, tile=1)", "another form"
    ),
    "given back": ("linear", LINEAR, "library(linear_product)", "fused into the product"),
    "beyond its tile": (
        "softmax", "single_block(softmax, value=8192)", "tile_size(softmax, constant=BLOCK, value=4096)", "fit one tile"
    ),
    "swizzled twice": ("product", "swizzle(matmul, group=4)", "swizzle(matmul, group=8)", "another form"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_action_that_does_not_apply_is_illegal(name):
    model, text, reason = REFUSED[name]
    with pytest.raises(Illegal, match=reason):
        actions.apply(context(model), action_of(text))


@pytest.mark.parametrize("name", LATER)
def test_an_action_that_no_longer_applies_is_illegal(name):
    model, first, text, reason = LATER[name]
    (edit,) = edits(plan(model, first))
    with pytest.raises(Illegal, match=reason):
        actions.apply(context(model, edit.after), action_of(text))


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(Illegal, match="no rule tile; there are fuse_prologue, fuse_epilogue, .*repair_mask"):
        actions.apply(context("chain"), Action("tile", "tiling", "mul", (), ""))


def test_descriptors_need_a_gpu_that_has_them():
    (edit,) = edits(plan("aligned", "split_fp16(matmul)"))
    with pytest.raises(Illegal, match="no tensor descriptors"):
        actions.apply(context("aligned", edit.after, "a100"), action_of("tensor_descriptors(matmul)"))


# -- repairs -------------------------------------------------------------------------------------------------------------


def test_a_mask_dropped_by_hand_comes_back():
    edit = last_edit("repair_mask")
    assert ", mask=mask" not in edit.before.text("mul_kernel")
    assert edit.after == lowered("chain").program


def test_repairs_lower_stages_tiles_and_registers_until_nothing_is_left():
    (edit,) = edits(plan("linear", "product_tile(linear_product, tile=0)"))
    program, done = edit.after, []
    while True:
        found = [a for a in actions.propose(context("linear", program), SHARED) if a.kind == "repair_shared"]
        found = [a for a in found if a.region == "linear_product"]
        if not found:
            break
        program = actions.apply(context("linear", program), found[0])
        done.append(found[0]["what"])
    assert done[:2] == ["num_stages", "num_stages"]
    assert "BLOCK_M, BLOCK_N, BLOCK_K = 16, 16, 16" in program.text("launch_linear_product")
    with pytest.raises(Illegal, match="cannot be halved"):
        actions.apply(context("linear", program), action_of("repair_shared(linear_product, what=BLOCK_M)"))


def test_a_spill_is_answered_where_it_is():
    spilled = Launch("gelu_kernel", (1, 1, 1), 4, 1, 255, 64, 0)
    whole = Launch("mul_kernel", (1, 1, 1), 4, 1, 30, 0, 0)
    verdict = Verified(Timing("measured", 2.0, 1.0, 2.0, 1.9, 2.1), Accuracy(0.0, 0.0), (spilled, whole))
    found = [a for a in actions.propose(context("linear"), verdict) if a.family == "repair"]
    assert [a.id for a in found] == ["repair_spill(gelu, what=num_warps)", "repair_spill(gelu, what=BLOCK)"]


# -- compiling -----------------------------------------------------------------------------------------------------------

COMPILED = ("all for a product", "fp16 pairs with epilogues", "second pass in registers", "split channel moments")


@pytest.mark.parametrize("name", COMPILED)
def test_long_sequences_compile_for_hopper(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {**FULL, "K": 4096, "B": 512}  # what single_block was asked for
    made = instantiate(problem(PLANS[name].model, sizes), "meta")
    with (
        candidate.imported(last_edit(name).after.source, lowered_sizes(name, sizes)) as module,
        stand_in(load("h100")) as seen,
    ):
        with torch.no_grad():
            candidate.call(candidate.build(module, made.model), made.inputs)
    assert seen.launches
    assert all(launch.stack_bytes == 0 for launch in seen.launches)
    if name == "all for a product":
        product = next(launch for launch in seen.launches if launch.kernel == "matmul_kernel")
        assert product.num_warps == 8 and product.shared_bytes > 64 * 1024
        assert "tt.descriptor_load" in product.ttir and "tt.dot" in product.ttir


def lowered_sizes(name: str, sizes: dict[str, int]) -> dict[str, Any]:
    """SIZES of a model at other sizes."""
    full, variant = problem(PLANS[name].model), capture(problem(PLANS[name].model, sizes)).graph
    assert variant is not None
    (found,) = lower(full, capture(full), [variant]).sizes
    assert found is not None
    return found
