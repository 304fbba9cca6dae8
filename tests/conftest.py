"""What every test gets: quiet threads, and a cache folder that is neither the user's nor another test run's."""

from __future__ import annotations

import os
import tempfile

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side


@pytest.fixture(scope="session", autouse=True)
def own_cache():
    """Verdicts and compiled kernels of a test run come from that run."""
    with tempfile.TemporaryDirectory(prefix="mtmc-cache-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        yield
