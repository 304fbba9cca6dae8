"""Environment and patience for the Python processes that tests start."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 500  # seconds: only a hang takes so long, a busy machine does not


def environment(**extra: str) -> dict[str, str]:
    """This process's environment with the packages it sees and `extra`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]), **extra}
