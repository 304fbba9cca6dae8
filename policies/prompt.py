"""The prompt: hardware card, kernel card, last steps and one menu, as text. A pure function of the View.

The wording stands in `prompts/*.txt`. A prompt is a prefix, the same for every menu of a decision, and the menu's text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from string import Template

from mtmc.hardware_profiles import Profile
from mtmc.policies.card import SHOWN, kernels, tensors
from mtmc.policies.menu import LABELS, Menu, Option
from mtmc.policies.policy import View
from mtmc.step import Step
from mtmc.tree import candidate_ms, reference_ms
from mtmc.verdict import Verdict, Verified
from mtmc.wording import details, outcome

FOLDER = Path(__file__).parent / "prompts"
STEPS = 3  # last steps told
TENSORS = 4  # tensors told of the input and of the state, the largest first
MINOR = 0.01  # kernels with less of the time are only named
FIRST = 3  # labels named once more by predicted time: a small model learns to copy one long before it learns to look for #1
WORDS = 160  # characters of what a failed verdict has to say
MEANING = " (predicted rank and gain over the best program, where known)"
PEAKS = ("tf32", "fp16", "bf16")


def prefix(view: View, hardware: bool = True) -> str:
    """Cards and last steps; without the hardware card where `hardware` is false. Ends in a newline."""
    return _template("prompt").substitute(
        hardware=_hardware(view.profile) if hardware and view.profile else "GPU: not told.",
        program=_program(view),
        kernels=_kernels(view),
        history=_history(view.history),
        tried=_tried(view),
    )


def text(menu: Menu) -> str:
    """The labelled options and the question, ready for one label as the next token (after a space)."""
    labelled = list(zip(LABELS, menu, strict=False))
    choices = "\n".join(f"{label}. {_told(option)}" for label, option in labelled)
    ranked = sorted((option.rank, label) for label, option in labelled if option.rank)
    first = ", ".join(label for _, label in ranked[:FIRST])
    favourites = f"\nFastest first, as predicted: {first}." if first else ""
    meaning = MEANING if ranked else ""
    return _template("menu").substitute(choices=choices, meaning=meaning, favourites=favourites).rstrip("\n")


def _told(option: Option) -> str:
    return f"{option.hint} {option.text}" if option.hint else option.text


@cache
def _template(name: str) -> Template:
    return Template((FOLDER / f"{name}.txt").read_text())


def _hardware(profile: Profile) -> str:
    peaks = {"fp32": profile.fp32_tflops, **{dtype: profile.tensor_tflops(dtype) for dtype in PEAKS}}
    features = {"asynchronous copies": profile.async_copy, "tensor descriptors": profile.tma, "warp groups": profile.wgmma}
    has = ", ".join(name for name, there in features.items() if there)
    return (
        _template("hardware")
        .substitute(
            title=profile.title,
            sm_count=profile.sm_count,
            memory_bandwidth_gb_s=f"{profile.memory_bandwidth_gb_s:g}",
            last_level_cache_mib=f"{profile.last_level_cache_mib:g}",
            shared_per_block_kib=f"{profile.shared_per_block_kib:g}",
            tflops=", ".join(f"{dtype} {peak:.0f}" for dtype, peak in peaks.items() if peak),
            features=f"Has {has}." if has else "No asynchronous copies.",
        )
        .rstrip("\n")
    )


def _program(view: View) -> str:
    inputs, state = tensors(view.program)
    calls = Counter(view.program.fallback_calls)
    listed = [name.removeprefix("aten.") + (f" x{count}" if count > 1 else "") for name, count in calls.items()]
    return (
        _template("program")
        .substitute(
            inputs=_largest(inputs), state=_largest(state), outcome=_outcome(view.verdict), calls=", ".join(listed) or "none"
        )
        .rstrip("\n")
    )


def _outcome(verdict: Verdict) -> str:
    if not isinstance(verdict, Verified):
        said = " ".join(details(verdict).split())[:WORDS].rstrip(".")
        return f"{outcome(verdict)}: {said}" if said else outcome(verdict)
    timing = verdict.timing
    floor = f", hardware's least {timing.floor_ms:.3g}" if timing.floor_ms else ""
    times = f"{candidate_ms(timing):.3g} ms, PyTorch {reference_ms(timing):.3g}{floor}"
    return f"{times}, speed-up {timing.speedup:.2f}"


def _largest(found: Sequence[str]) -> str:
    """The largest tensors, equal ones counted; `none` where there is none."""
    counts = Counter(found)
    ranked = sorted(counts, key=lambda tensor: -prod(int(n) for n in tensor.split()[1].split("x") if n.isdecimal()))
    shown = [tensor + (f" ({counts[tensor]} of them)" if counts[tensor] > 1 else "") for tensor in ranked[:TENSORS]]
    return ", ".join([*shown, *([f"{len(ranked) - TENSORS} more"] if len(ranked) > TENSORS else [])]) or "none"


def _kernels(view: View) -> str:
    found = kernels(view.program, view.verdict)
    timed = any(kernel.share for kernel in found)
    shown = [kernel for kernel in found[:SHOWN] if kernel.share >= MINOR or not timed]
    lines = [f"- {kernel.name}{f' {kernel.share:.0%} of the time' if timed else ''}: {kernel}" for kernel in shown]
    others = [kernel.name for kernel in found[len(shown) :]]
    if others:
        names = ", ".join(others[:SHOWN]) + (", …" if len(others) > SHOWN else "")
        lines.append(f"- {len(others)} smaller: {names}")
    return "\n".join(["Kernels:", *lines]) if lines else "Kernels: none."


def _history(steps: Sequence[Step]) -> str:
    """The last steps, newest last, each with its outcome, its gain and its reward."""
    befores = (None, *(step.verdict for step in steps))
    shown = [(before, step) for before, step in zip(befores, steps, strict=False) if step.action][-STEPS:]
    lines = [f"- {step.action.sentence} {_effect(before, step)}" for before, step in shown if step.action]
    return "\n".join(["Last steps:", *lines]) if lines else "Last steps: none."


def _tried(view: View) -> str:
    """The last steps taken from here, newest last; nothing where there are none."""
    lines = [f"- {step.action.sentence} {_effect(view.verdict, step)}" for step in view.tried[-STEPS:] if step.action]
    return "".join(["\nTried from here:", *(f"\n{line}" for line in lines)]) if lines else ""


def _effect(old: Verdict | None, step: Step) -> str:
    said = outcome(step.verdict)
    if isinstance(step.verdict, Verified):
        ratio = step.verdict.timing.speedup / old.timing.speedup - 1 if isinstance(old, Verified) else None
        said = f"{ratio:+.0%}" if ratio is not None else f"speed-up {step.verdict.timing.speedup:.2f}"
    return f"({said}{f', reward {step.reward:.2f}' if step.reward is not None else ''})"
