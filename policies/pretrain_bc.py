"""Behaviour cloning: the language model learns to take the steps that were best in stored trees.

    mtmc pretrain trees/ --out runs/bc          (or python -m mtmc.policies.pretrain_bc)

1. Trees become stages: at each program a menu, and the share of each option in what the expert takes, which looks the worth
   of every known step up in the tree (`decisions`). Structures held out for evaluation are left
   out, and some others are only watched.
2. Each step shows the model a batch of menus with their options in a new order, and lowers the cross-entropy between the
   expert's shares and the model's softmax over the labels of the options that have a known outcome.
3. From time to time: loss and accuracy on watched stages, curves, a checkpoint; the adapter of the least watched loss is
   kept in `adapter/`.

Every batch follows from the seed and the number of the step alone, so a resumed run goes on as if it had never stopped.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from mtmc.errors import BadInput, guarded
from mtmc.policies import prompt, tiny
from mtmc.policies.curves import Curves, sentence, tell
from mtmc.policies.decisions import Expert, Stage, stages, summary, trees
from mtmc.policies.menu import length
from mtmc.policies.model import END, Lora, Policy, Until, fitting, masks, read_checkpoint, write_checkpoint
from mtmc.policies.weights import Source, source
from mtmc.trajectories import archive
from mtmc.trajectories.files import folder
from mtmc.trajectories.trees import StoredTree

BEST = 0.9  # an option is among the best when its share is at least this part of the largest


@dataclass(frozen=True)
class Settings:
    """Everything that decides what is learnt. `steps` updates of `batch` stages each, `rows` of them in memory at once.

    The learning rate rises over the first `warmup` part of the steps and falls as a cosine to a tenth. `watched` is the
    part of the structures that is only looked at; `known` shows only actions with a known outcome, `guided` predicted times.
    `jobs` processes write the prompts, 0 for as many as there are cores.
    """

    steps: int = 2000
    batch: int = 32
    rows: int = 16
    rate: float = 5e-4
    warmup: float = 0.05
    clip: float = 1.0
    seed: int = 0
    watched: float = 0.1
    every: int = 100
    looked_at: int = 512
    known: bool = False
    hardware: bool = True
    guided: bool = True
    lora: Lora = Lora()
    expert: Expert = Expert()
    gpus: tuple[str, ...] = ()
    jobs: int = 0


TINY = Settings(steps=20, batch=4, rows=4, rate=3e-3, every=5, looked_at=32, watched=0.3, lora=Lora(4, 8), jobs=1)


@dataclass(frozen=True)
class Data:
    """Stages to learn from and stages that are only looked at, with the numbers of their trees."""

    learnt: tuple[Stage, ...]
    watched: tuple[Stage, ...]
    counts: dict[str, int] = field(default_factory=dict)


def pretrain(
    found: Sequence[StoredTree], out: Path, model: Source, settings: Settings, device: str = "", until: Until = END
) -> dict[str, float]:
    """Train, or go on with what `out` holds; the last step's figures, its number as `step`. Raises BadInput."""
    data = gather(found, settings)
    folder(out)
    policy = Policy(model, settings.lora, device, settings.seed)
    optimizer = torch.optim.AdamW(policy.trained(), lr=settings.rate, weight_decay=0.0)
    recorded = {**asdict(settings), "model": model.base, "adapter": str(model.adapter or ""), "trees": summary(found)}
    checkpoint = read_checkpoint(
        out / "checkpoint.pt", {k: v for k, v in recorded.items() if k not in ("every", "rows", "jobs")}
    )
    start, least = 0, math.inf
    if checkpoint:
        policy.restore(checkpoint["policy"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start, least = checkpoint["step"], checkpoint["least"]
    curves = Curves(out, start)
    tell(sentence(data.counts) + (f"; going on after step {start} of {settings.steps}" if start else ""))

    began, sums = time.monotonic(), _Sums()
    last = min(until.step or settings.steps, settings.steps)
    for step in range(start + 1, last + 1):
        batch = draw(data.learnt, step, settings)
        for group in optimizer.param_groups:
            group["lr"] = settings.rate * schedule(step / settings.steps, settings.warmup)
        whole = sum(stage.weight for stage in batch)
        for part in _parts(batch, settings.rows):
            loss, right = compare(policy, part)
            (loss.sum() / whole).backward()  # type: ignore[no-untyped-call]
            sums.add(loss, right, part)
        norm = torch.nn.utils.clip_grad_norm_(policy.trained(), settings.clip)
        optimizer.step()
        optimizer.zero_grad()

        over = until.over
        if step % settings.every == 0 or step == last or over:
            figures = {"loss/learnt": sums.loss, "accuracy/learnt": sums.accuracy, "gradient norm": float(norm)}
            figures |= look(policy, data, settings)
            figures["seconds a step"] = (time.monotonic() - began) / sums.steps(settings.batch)
            curves.add(step, figures)
            curves.draw()
            if figures.get("loss/watched", figures["loss/learnt"]) < least:
                least = figures.get("loss/watched", figures["loss/learnt"])
                policy.save(out / "adapter")
            state = {"policy": policy.state(), "optimizer": optimizer.state_dict(), "step": step, "least": least}
            write_checkpoint(out / "checkpoint.pt", {**state, "settings": recorded})
            tell(f"step {step}: {sentence(figures)}")
            began, sums = time.monotonic(), _Sums()
        if over:
            break
    curves.close()
    return curves.rows[-1]


def gather(found: Sequence[StoredTree], settings: Settings) -> Data:
    """Stages of the trees of the wanted GPUs, evaluation's left out. Raises BadInput where nothing is left to learn from."""
    wanted = usable(found, settings.gpus)
    parts: dict[bool, list[Stage]] = {True: [], False: []}
    count = {True: 0, False: 0}
    for tree, found_there in zip(wanted, _all_stages(wanted, settings), strict=True):
        out = is_watched(tree, settings.watched)
        parts[out] += found_there
        count[out] += 1
    if not parts[False]:
        raise BadInput("There is no decision to learn from: no tree has a program with two known ways on.")
    counts = {"trees": count[False], "stages": len(parts[False]), "watched": count[True], "their stages": len(parts[True])}
    return Data(tuple(parts[False]), tuple(parts[True]), counts)


def usable(found: Sequence[StoredTree], gpus: Sequence[str]) -> list[StoredTree]:
    """The trees of these profiles (of all where none is named) that are not kept for evaluation."""
    return [tree for tree in found if not tree.question.held_out and (not gpus or tree.provenance.gpu in gpus)]


def _all_stages(wanted: Sequence[StoredTree], settings: Settings) -> Iterator[list[Stage]]:
    """The stages of each tree; writing a prompt takes about 10 ms, and there are thousands."""
    jobs = min(settings.jobs or len(os.sched_getaffinity(0)), len(wanted))
    if jobs <= 1:
        yield from (_stages_of(settings, tree) for tree in wanted)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(partial(_stages_of, settings), wanted)


def _stages_of(settings: Settings, tree: StoredTree) -> list[Stage]:
    return list(stages(tree, settings.expert, settings.known, settings.hardware, settings.guided))


def is_watched(tree: StoredTree, share: float) -> bool:
    """By the hash of the operator structure (of the name where it is unknown): equal structures are on one side."""
    name = tree.question.structure or tree.question.name
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) < share * 2**32


def draw(learnt: Sequence[Stage], step: int, settings: Settings) -> list[Stage]:
    """The batch of a step: every stage once an epoch, options in a new order each time."""
    size = settings.batch
    places = range((step - 1) * size, step * size)
    orders = {at // len(learnt): list(range(len(learnt))) for at in places}
    for epoch, order in orders.items():
        Random(f"{settings.seed}:{epoch}").shuffle(order)
    chosen = [learnt[orders[at // len(learnt)][at % len(learnt)]] for at in places]
    return [stage.shuffled(Random(f"{settings.seed}:{step}:{at}")) for at, stage in enumerate(chosen)]


def schedule(progress: float, warmup: float) -> float:
    """The part of the learning rate at a progress of 0 to 1: a rise, then a cosine down to a tenth."""
    if progress < warmup:
        return progress / warmup
    return 0.55 + 0.45 * math.cos(math.pi * (progress - warmup) / (1 - warmup))


def compare(policy: Policy, batch: Sequence[Stage]) -> tuple[Tensor, Tensor]:
    """Weighted cross-entropy, float32 [stages], and whether the likeliest option is among the best, bool [stages]."""
    rows = [policy.ids(stage.prefix) + policy.ids(prompt.text(stage.menu)) for stage in batch]
    found, _ = policy(rows, masks([stage.known for stage in batch], policy.device))
    target = torch.zeros_like(found)
    for place, stage in enumerate(batch):
        target[place, : len(stage.target)] = torch.tensor(stage.target)
    weights = torch.tensor([stage.weight for stage in batch], device=policy.device)
    taken = target.gather(-1, found.argmax(-1, keepdim=True))[:, 0]
    return -weights * (target * found).sum(-1), taken >= BEST * target.amax(-1)


@torch.no_grad()
def look(policy: Policy, data: Data, settings: Settings) -> dict[str, float]:
    """Loss and accuracy on the watched stages; nothing where there are none."""
    policy.eval()
    sums = _Sums()
    for part in _parts(list(data.watched[: settings.looked_at]), settings.rows):
        sums.add(*compare(policy, part), part)
    policy.train()
    return {"loss/watched": sums.loss, "accuracy/watched": sums.accuracy} if sums.weight else {}


@dataclass
class _Sums:
    """Running means over stages, each with its weight."""

    total: Tensor | float = 0.0
    right: Tensor | float = 0.0
    weight: float = 0.0
    stages: int = 0

    def add(self, loss: Tensor, right: Tensor, part: Sequence[Stage]) -> None:
        weights = [stage.weight for stage in part]
        self.total = self.total + loss.detach().sum()  # on the device: to ask for a number waits for it
        self.right = self.right + (torch.tensor(weights, device=right.device) * right).sum()
        self.weight += sum(weights)
        self.stages += len(part)

    def steps(self, batch: int) -> float:
        return max(self.stages / batch, 1.0)

    @property
    def loss(self) -> float:
        return float(self.total) / self.weight

    @property
    def accuracy(self) -> float:
        return float(self.right) / self.weight


def _parts(batch: list[Stage], rows: int) -> Iterator[list[Stage]]:
    """The batch in parts of `rows`, stages of like length together, which saves padding."""
    ordered = sorted(batch, key=lambda stage: len(stage.prefix) + length(stage.menu))
    yield from (ordered[at : at + rows] for at in range(0, len(ordered), rows))


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Places = Annotated[list[Path] | None, typer.Argument(help="Folders of trees or of runs; else the samples.")]
Out = Annotated[Path, typer.Option(help="Folder of checkpoint, curves and adapter; a run there is resumed.")]
Device = Annotated[str, typer.Option(help="cuda, cuda:1, cpu; else the GPU where there is one.")]
TinyRun = Annotated[bool, typer.Option("--tiny", help="A model of random weights, few steps: under a minute.")]
Known = Annotated[bool | None, typer.Option("--known/--foreseen", help="Menus of tried actions, or of predicted ones too.")]
Hardware = Annotated[bool | None, typer.Option("--hardware/--no-hardware", help="Show the GPU's card.")]
Guided = Annotated[bool | None, typer.Option("--predicted/--no-predicted", help="Show predicted gains.")]
Gpus = Annotated[list[str] | None, typer.Option(help="Only trees of this profile; repeatable.")]
Minutes = Annotated[float, typer.Option(min=0, help="Stop for now after this; 0: no limit.")]
Count = int | None
Number = float | None


@app.command()
def pretrain_command(  # noqa: PLR0913  one parameter an option
    places: Places = None,
    out: Out = Path("runs/bc"),
    model: Annotated[str, typer.Option(help="PATH[+ADAPTER] of a causal model; else the default one, bare.")] = "",
    device: Device = "",
    tiny_run: TinyRun = False,
    steps: Annotated[Count, typer.Option(min=1, help="Updates.")] = None,
    batch: Annotated[Count, typer.Option(min=1, help="Menus an update.")] = None,
    rows: Annotated[Count, typer.Option(min=1, help="Menus in memory at once.")] = None,
    rate: Annotated[Number, typer.Option(min=0, help="Largest learning rate.")] = None,
    rank: Annotated[Count, typer.Option(min=1, help="Rank of the adapter.")] = None,
    every: Annotated[Count, typer.Option(min=1, help="Updates between looks at watched trees, and checkpoints.")] = None,
    looked_at: Annotated[Count, typer.Option(min=1, help="Menus of watched trees looked at.")] = None,
    jobs: Annotated[Count, typer.Option(min=0, help="Processes that write prompts; 0: one a core.")] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal batches.")] = None,
    until: Annotated[int, typer.Option(min=0, help="Stop after this update for now; 0: at the end.")] = 0,
    minutes: Minutes = 0.0,
    watched: Annotated[Number, typer.Option(min=0, max=0.9, help="Part of the structures only looked at.")] = None,
    discount: Annotated[Number, typer.Option(min=0, help="Of a gain that comes one step later.")] = None,
    temperature: Annotated[Number, typer.Option(min=1e-4, help="Of the expert's choice, in log speed-up.")] = None,
    courses: Annotated[Count, typer.Option(min=1, help="Courses a tree, at whose decisions the expert is asked.")] = None,
    believes: Annotated[bool | None, typer.Option("--believed/--tried", help="Predictions of what nobody tried.")] = None,
    known: Known = None,
    hardware: Hardware = None,
    guided: Guided = None,
    gpu: Gpus = None,
) -> None:
    """Behaviour cloning: learn to take the steps that were best in stored trees; writes an adapter."""
    base = TINY if tiny_run else Settings()
    settings = changed(
        base, steps=steps, batch=batch, rows=rows, rate=rate, every=every, looked_at=looked_at, seed=seed, jobs=jobs,
        watched=watched, known=known, hardware=hardware, guided=guided, gpus=tuple(gpu) if gpu else None,
        expert=changed(base.expert, discount=discount, temperature=temperature, courses=courses, believes=believes),
        lora=with_rank(base.lora, rank),
    )  # fmt: skip
    stop = Until.of(until, minutes)
    with fitting(settings.rows):
        last = pretrain(trees(places or [archive.SAMPLES]), out, start_model(model, tiny_run, out), settings, device, stop)
    stop.check(int(last["step"]), settings.steps)
    print(out / "adapter")


def with_rank(lora: Lora, rank: int | None) -> Lora:
    return Lora(rank, 2 * rank) if rank else lora


def start_model(model: str, tiny_run: bool, out: Path) -> Source:
    """The model to train: the named one, that of `--tiny`, or the default one without the adapter that ships with it."""
    if tiny_run and not model:
        return Source(str(tiny.write(out / "model")))
    found = source(model, tell)
    return found if model else Source(found.base)


def changed(settings: Any, **values: Any) -> Any:
    """The settings with the values that are not None."""
    given = {name: value for name, value in values.items() if value is not None}
    return type(settings)(**{**{name: getattr(settings, name) for name in settings.__dataclass_fields__}, **given})


if __name__ == "__main__":
    guarded(app)
