"""Reinforcement: PPO on stored trees, from the cloned policy (or from any other, or from none).

    mtmc train trees/ --model +runs/bc/adapter --out runs/rl      (or python -m mtmc.policies.train_rl)

Each iteration: many walks (courses as `mtmc evaluate-policy` has them, or episodes of the environment) through trees of the
grades that the curriculum allows, some through each, every choice drawn from the policy; the advantages of all choices (GAE)
over those of the tree's other walks; some passes over them with the clipped objective, a value loss, the KL divergence to
the policy that it started from, and a penalty where the entropy falls below its floor. No kernel runs: outcomes are the
trees'.

A choice can be two menus, one after the other; its log-probability is the sum over them, its value is read at the first.

Left out of textbook PPO (Schulman et al. 2017; the 37 details of Huang et al. 2022): several optimiser processes, clipping
of the value loss, orthogonal initialisation, scaling of observations and rewards, early stopping of the passes by KL (there
is a KL term), annealing of the clip range, recurrent state (the prompt holds the last steps), and bootstrapping where the
horizon cuts a walk (rewards telescope, and what a cut walk kept is its own).

Walks and batches of an iteration follow from the seed and its number: a resumed run goes on as if it had never stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated, TypeVar

import torch
import typer
from torch import Tensor

from mtmc.errors import BadInput, guarded
from mtmc.policies import prompt
from mtmc.policies.credit import Choice, Stage, compare, credit, normalised
from mtmc.policies.curves import Curves, sentence, tell
from mtmc.policies.decisions import ExpertPolicy, summary, trees
from mtmc.policies.environment import REWARDS
from mtmc.policies.hunt import Hunt
from mtmc.policies.menu import Gains, Menu, length, menu
from mtmc.policies.model import END, Answers, Lora, Policy, Until, fitting, masks, read_checkpoint, write_checkpoint
from mtmc.policies.pretrain_bc import (
    Count,
    Device,
    Gpus,
    Guided,
    Hardware,
    Known,
    Minutes,
    Number,
    Out,
    Places,
    TinyRun,
    changed,
    start_model,
    usable,
    with_rank,
)
from mtmc.policies.walk import ORDERS, Walk
from mtmc.policies.weights import Source
from mtmc.trajectories import archive
from mtmc.trajectories.files import folder
from mtmc.trajectories.trees import StoredTree

GRADES = 5
APART = 20.0  # seconds between two checkpoints at least: curves, adapter and checkpoint take seconds themselves
Item = TypeVar("Item")


@dataclass(frozen=True)
class Settings:
    """Everything that decides what is learnt. An iteration makes `walks` walks of `horizon` candidates; `order`: see `walk`.

    `passes` over their choices, `batch` choices an update, `rows` menus in memory at once. `kl` weighs the divergence to the
    policy at the start, `floor` is the least entropy (as a part of the largest possible), kept up with the weight `lift`.
    All grades are open after the part `opened` of the iterations. A tree is walked `together` times in an iteration, so that
    walks are compared with others of the same tree: which tree it is decides nearly all of a return.
    """

    iterations: int = 60
    walks: int = 128
    together: int = 4
    horizon: int = 10
    passes: int = 2
    batch: int = 64
    rows: int = 32
    rate: float = 5e-5
    value_rate: float = 1e-4
    discount: float = 1.0
    trace: float = 0.95
    clip: float = 0.2
    value: float = 0.5
    kl: float = 0.05
    floor: float = 0.15
    lift: float = 0.1
    norm: float = 1.0
    opened: float = 0.5
    reward: str = "graded"
    order: str = "best"
    seed: int = 0
    known: bool = False
    hardware: bool = True
    guided: bool = True
    lora: Lora = Lora()
    gpus: tuple[str, ...] = ()


TINY = Settings(iterations=3, walks=6, horizon=4, passes=1, batch=8, rows=8, rate=1e-3, opened=0.0, lora=Lora(4, 8))


@dataclass
class Open:
    """A choice being made: the options that are left to choose from."""

    walk: Hunt | Walk
    prefix: str
    gains: Gains
    options: Menu
    choice: Choice


def train(
    found: Sequence[StoredTree], out: Path, model: Source, settings: Settings, device: str = "", until: Until = END
) -> dict[str, float]:
    """Train, or go on with what `out` holds; the last iteration's figures, its number as `step`. Raises BadInput."""
    able = [tree for tree in usable(found, settings.gpus) if tree.edges(tree.root)]
    if not able:
        raise BadInput("There is no tree to train on: none has a known step from its first program.")
    folder(out)
    policy = Policy(model, settings.lora, device, settings.seed)
    policy.keep_reference()
    groups = [
        {"params": policy.trained(), "lr": settings.rate},
        {"params": policy.head.parameters(), "lr": settings.value_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    recorded = {**asdict(settings), "model": model.base, "adapter": str(model.adapter or ""), "trees": summary(able)}
    checkpoint = read_checkpoint(out / "checkpoint.pt", {k: v for k, v in recorded.items() if k != "rows"})
    start = 0
    if checkpoint:
        policy.restore(checkpoint["policy"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["iteration"]
    curves, reference = Curves(out, start), Answers(policy.reference, policy.device)
    reach: dict[int, float] = {}  # by the tree's id: what the expert earns there
    tell(f"{len(able)} trees, iterations {start + 1} to {settings.iterations}")

    last, saved = min(until.step or settings.iterations, settings.iterations), time.monotonic()
    for iteration in range(start + 1, last + 1):
        began, rng = time.monotonic(), Random(f"{settings.seed}:{iteration}")
        allowed = curriculum(able, iteration / settings.iterations, settings.opened)
        drawn = [rng.choice(allowed) for _ in range(math.ceil(settings.walks / settings.together))]
        walks = [
            ORDERS[settings.order](tree, settings.horizon, settings.reward, settings.known, settings.guided)
            for tree in drawn
            for _ in range(settings.together)
        ]
        choices = roll_out(policy, reference, walks, settings, rng)
        for walk, made in zip(walks, choices, strict=True):
            credit(made, walk.rewards, settings.discount, settings.trace)
        for at in range(0, len(choices), settings.together):
            compare(choices[at : at + settings.together])
        reach |= {id(tree): reachable(tree, settings) for tree in drawn if id(tree) not in reach}
        flat = normalised([choice for made in choices for choice in made])
        walked = time.monotonic() - began

        figures = update(policy, optimizer, flat, settings, rng)
        figures |= {
            "return": (returned := sum(sum(walk.rewards) for walk in walks) / len(walks)),
            "share of the expert": returned * len(drawn) / max(sum(reach[id(tree)] for tree in drawn), 1e-9),
            "gain": sum(walk.gain for walk in walks) / len(walks),
            "steps of a walk": len(flat) / len(walks),
            "trees open": float(len(allowed)),
            "seconds/walks": walked,
            "seconds/all": time.monotonic() - began,
        }
        curves.add(iteration, figures)
        tell(f"iteration {iteration}: {sentence(figures)}")
        over = until.over
        if over or iteration == last or time.monotonic() - saved >= APART:
            curves.draw()
            policy.save(out / "adapter")
            state = {"policy": policy.state(), "optimizer": optimizer.state_dict(), "iteration": iteration}
            write_checkpoint(out / "checkpoint.pt", {**state, "settings": recorded})
            saved = time.monotonic()
        if over:
            break
    curves.close()
    return curves.rows[-1]


def reachable(tree: StoredTree, settings: Settings) -> float:
    """The return of a walk whose choices are the expert's."""
    walk = ORDERS[settings.order](tree, settings.horizon, settings.reward, settings.known, settings.guided)
    expert, rng = ExpertPolicy(tree), Random(0)
    while walk.view and (action := expert.choose(walk.view, rng).action) is not walk.view.stop:
        walk.take(action)
    return sum(walk.rewards)


def curriculum(found: Sequence[StoredTree], progress: float, opened: float) -> list[StoredTree]:
    """The trees of the grades open at a progress of 0 to 1, the easiest that there are in any case."""
    least = min(tree.question.grade for tree in found)
    grade = GRADES if progress >= opened else 1 + math.floor(GRADES * progress / opened)
    return [tree for tree in found if tree.question.grade <= max(grade, least)]


@torch.no_grad()
def roll_out(
    policy: Policy, reference: Answers, walks: Sequence[Hunt | Walk], settings: Settings, rng: Random
) -> list[list[Choice]]:
    """Walk all walks to their ends side by side; the choices of each. `reference` answers for the policy at the start."""
    policy.eval()
    now = Answers(policy, policy.device)
    made: list[list[Choice]] = [[] for _ in walks]
    while any(walk.view for walk in walks):
        level: list[Open] = []
        for place, walk in enumerate(walks):
            if walk.view:
                made[place].append(Choice())
                before = prompt.prefix(walk.view, settings.hardware)
                gains = walk.view.gains
                level.append(Open(walk, before, gains, menu(walk.view.legal, gains), made[place][-1]))
        while level:
            level.sort(
                key=lambda at: len(at.prefix) + length(at.options)
            )  # rows of like length together, which saves padding
            level = _choose(policy, (now, reference), level, settings.rows, rng)
    policy.train()
    return made


def _choose(policy: Policy, answers: tuple[Answers, Answers], level: list[Open], rows: int, rng: Random) -> list[Open]:
    """One menu of every open choice: drawn, noted, and taken where it named an action; those that go on to another menu."""
    deeper: list[Open] = []
    for part in _parts(level, rows):
        tokens = [policy.ids(at.prefix) + policy.ids(prompt.text(at.options)) for at in part]
        says = [[any(map(at.walk.has_a_say, option.actions)) for option in at.options] for at in part]
        found, references = (ask(tokens, says) for ask in answers)
        for at, row, say, (chances, value), (reference, _) in zip(part, tokens, says, found, references, strict=True):
            taken = rng.choices(range(len(say)), weights=chances[: len(say)].exp().tolist())[0]
            at.choice.value = at.choice.value if at.choice.stages else value
            at.choice.log_probability += float(chances[taken])
            at.choice.stages.append(Stage(row, say, taken, reference))
            actions = at.options[taken].actions
            if len(actions) > 1:
                deeper.append(replace(at, options=menu(actions, at.gains)))
            else:
                at.walk.take(actions[0])
    return deeper


def update(
    policy: Policy, optimizer: torch.optim.Optimizer, choices: list[Choice], settings: Settings, rng: Random
) -> dict[str, float]:
    """The passes over the choices; means of the figures over all updates."""
    sums: dict[str, Tensor] = {}  # on the device: to ask for a number waits for it
    count = 0
    for _ in range(settings.passes):
        order = rng.sample(choices, len(choices))
        for at in range(0, len(order), settings.batch):
            batch = sorted(
                order[at : at + settings.batch], key=lambda choice: max(len(stage.row) for stage in choice.stages)
            )
            for part in _parts(batch, settings.rows):
                loss, figures = objective(policy, part, settings)
                (loss * len(part) / len(batch)).backward()  # type: ignore[no-untyped-call]
                for name, value in figures.items():
                    sums[name] = sums.get(name, torch.zeros_like(value)) + value * len(part)
                count += len(part)
            for group in optimizer.param_groups:  # each by itself: the head's gradient is many times the adapter's
                torch.nn.utils.clip_grad_norm_(group["params"], settings.norm)
            optimizer.step()
            optimizer.zero_grad()
    return {name: float(value) / count for name, value in sums.items()}


def objective(policy: Policy, part: Sequence[Choice], settings: Settings) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of some choices (to be lowered), and what it is made of."""
    device = policy.device
    stages = [stage for choice in part for stage in choice.stages]
    owner = torch.tensor([at for at, choice in enumerate(part) for _ in choice.stages], device=device)
    first = torch.tensor([at == 0 for choice in part for at in range(len(choice.stages))], device=device)
    known = masks([stage.known for stage in stages], device)
    found, values = _each_once(policy, stages, device)
    taken = found.gather(-1, torch.tensor([[stage.taken] for stage in stages], device=device))[:, 0]
    new = torch.zeros(len(part), device=device).index_add(0, owner, taken)
    old, advantage, target = torch.tensor(
        [[choice.log_probability, choice.advantage, choice.target] for choice in part], device=device
    ).unbind(1)

    ratio = (new - old).exp()
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
    error = (values[first] - target).square().mean()
    chances = found.exp()
    kept = torch.stack([stage.reference for stage in stages]).to(device)
    divergence = (chances * (found - kept)).masked_fill(~known, 0.0).sum(-1).mean()
    options = known.sum(-1)
    entropy = (-(chances * found).masked_fill(~known, 0.0).sum(-1) / options.clamp(min=2).log())[options > 1]
    shortfall = (settings.floor - entropy).clamp(min=0.0).sum() / max(len(entropy), 1)
    loss = -gain + settings.value * error + settings.kl * divergence + settings.lift * shortfall
    figures = {
        "objective": gain,
        "value error": error,
        "divergence from the start": divergence,
        "entropy": entropy.sum() / max(len(entropy), 1),
        "clipped": ((ratio - 1).abs() > settings.clip).float().mean(),
    }
    return loss, {name: value.detach() for name, value in figures.items()}


def _each_once(policy: Policy, stages: Sequence[Stage], device: torch.device) -> tuple[Tensor, Tensor]:
    """The policy's answers to all stages, equal ones computed once: walks through a tree meet the same menus."""
    keys = [(tuple(stage.row), tuple(stage.known)) for stage in stages]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    found, values = policy([row for row, _ in places], masks([known for _, known in places], device))
    at = torch.tensor([places[key] for key in keys], device=device)
    return found[at], values[at]


def _parts(items: Sequence[Item], rows: int) -> Iterator[Sequence[Item]]:
    yield from (items[at : at + rows] for at in range(0, len(items), rows))


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def train_command(  # noqa: PLR0913  one parameter an option
    places: Places = None,
    out: Out = Path("runs/rl"),
    model: Annotated[str, typer.Option(help="PATH[+ADAPTER] to start from; +ADAPTER: the default model with it.")] = "",
    device: Device = "",
    tiny_run: TinyRun = False,
    iterations: Annotated[Count, typer.Option(min=1, help="Iterations.")] = None,
    walks: Annotated[Count, typer.Option(min=1, help="Walks an iteration.")] = None,
    horizon: Annotated[Count, typer.Option(min=1, help="Candidates of a walk at most.")] = None,
    passes: Annotated[Count, typer.Option(min=1, help="Passes over the choices of an iteration.")] = None,
    batch: Annotated[Count, typer.Option(min=1, help="Choices an update.")] = None,
    rows: Annotated[Count, typer.Option(min=1, help="Menus in memory at once.")] = None,
    rate: Annotated[Number, typer.Option(min=0, help="Learning rate of the adapter.")] = None,
    kl: Annotated[Number, typer.Option(min=0, help="Weight of the divergence from the start.")] = None,
    floor: Annotated[Number, typer.Option(min=0, help="Least entropy, as a part of the largest possible.")] = None,
    opened: Annotated[Number, typer.Option(min=0, help="Part of the run after which all grades are open.")] = None,
    discount: Annotated[Number, typer.Option(min=0, help="Of a reward one step later.")] = None,
    reward: Annotated[str | None, typer.Option(help=f"What a step earns: {' or '.join(REWARDS)}.")] = None,
    order: Annotated[str | None, typer.Option(help=f"The program that comes next: {' or '.join(ORDERS)}.")] = None,
    rank: Annotated[Count, typer.Option(min=1, help="Rank of a new adapter.")] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal walks.")] = None,
    until: Annotated[int, typer.Option(min=0, help="Stop after this iteration for now; 0: at the end.")] = 0,
    minutes: Minutes = 0.0,
    known: Known = None,
    hardware: Hardware = None,
    guided: Guided = None,
    gpu: Gpus = None,
) -> None:
    """Reinforcement: PPO on stored trees; no kernel runs. Writes an adapter."""
    if reward is not None and reward not in REWARDS:
        raise BadInput(f"There is no reward {reward}; known are {', '.join(REWARDS)}.")
    if order is not None and order not in ORDERS:
        raise BadInput(f"There is no order {order}; known are {', '.join(ORDERS)}.")
    base = TINY if tiny_run else Settings()
    settings = changed(
        base, iterations=iterations, walks=walks, horizon=horizon, passes=passes, batch=batch, rows=rows, rate=rate, kl=kl,
        floor=floor, opened=opened, discount=discount, reward=reward, order=order, seed=seed, known=known,
        hardware=hardware, guided=guided, gpus=tuple(gpu) if gpu else None, lora=with_rank(base.lora, rank),
    )  # fmt: skip
    stop = Until.of(until, minutes)
    with fitting(settings.rows):
        last = train(trees(places or [archive.SAMPLES]), out, start_model(model, tiny_run, out), settings, device, stop)
    stop.check(int(last["step"]), settings.iterations)
    print(out / "adapter")


if __name__ == "__main__":
    guarded(app)
