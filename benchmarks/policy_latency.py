"""How long one decision of the language model takes, over a menu of 16 single actions.

OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0 python benchmarks/policy_latency.py trajectories/samples
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from mtmc.policies import decisions, llm, menu, prompt, scoring, weights
from mtmc.policies.policy import View
from mtmc.policies.replay import Replay

OPTIONS = 16


def widest(places: list[Path]) -> View:
    """The decision with the most legal actions at a root."""
    found = [decisions.view(Replay(tree), tree.root) for tree in decisions.trees(places)]
    return max(found, key=lambda view: len(view.legal))


def seconds(work: Callable[[], object], repeats: int) -> str:
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return f"median {statistics.median(times):.2f} s, least {min(times):.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--model", default="")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    scorer = scoring.load(weights.source(options.model, print))
    view = widest(options.places)
    chosen = (*view.moves[: OPTIONS - 1], view.stop)
    singles = tuple(menu.Option(action.sentence, (action,)) for action in chosen)
    before, whole = prompt.prefix(view), prompt.text(singles)
    print(f"{scorer.model.dtype}, {len(singles)} options, {len(scorer.ids(before)) + len(scorer.ids(whole))} tokens")
    print("labels:", seconds(lambda: scorer.by_label(before, [singles]), options.repeats))
    print("sentences:", seconds(lambda: scorer.by_sentence(before, [singles]), options.repeats))
    policy = llm.LlmPolicy(scorer.by_label)
    every = seconds(lambda: policy.choose(view, None), options.repeats)  # type: ignore[arg-type]
    print(f"choice with the probability of all {len(view.legal)} legal actions:", every)


if __name__ == "__main__":
    main()
