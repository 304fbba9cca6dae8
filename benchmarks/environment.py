"""Steps a second of the Gymnasium environment over stored trees, each step with its observation, resets included.

python benchmarks/environment.py trajectories/samples
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np

from mtmc.policies.environment import REWARDS, StoredTrees
from mtmc.trajectories import archive


def pace(env: StoredTrees, steps: int) -> float:
    """Steps a second of legal choices at random."""
    chance = random.Random(0)
    observation, _ = env.reset(seed=0)
    began = time.perf_counter()
    for _ in range(steps):
        slot = chance.choice(np.flatnonzero(observation["action_mask"]))
        observation, _, terminated, truncated, _ = env.step(slot)
        if terminated or truncated:
            observation, _ = env.reset()
    return steps / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs="+", help="folders of stored trees")
    parser.add_argument("--steps", type=int, default=200_000)
    arguments = parser.parse_args()
    trees = tuple(archive.load(*arguments.trees))
    for kind in REWARDS:
        env = StoredTrees(trees, kind)
        print(f"{kind}: {pace(env, arguments.steps):,.0f} steps/s over {len(trees)} trees, {env.action_space.n} places")


if __name__ == "__main__":
    main()
