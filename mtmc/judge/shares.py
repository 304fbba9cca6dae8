"""Where the device time of a call goes: each unit of the program, and the PyTorch operators called beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from mtmc.judge.timing import Call, Clock

UNWRITTEN = ("empty", "new_empty", "detach", "alias", "lift_fresh", "_unsafe_view")  # operators (by prefix) without a kernel


@dataclass
class Shares:
    """Milliseconds of one call: of each unit, and of everything that PyTorch computes outside them."""

    units: dict[str, float] = field(default_factory=dict)
    library: float = 0.0


def shares(module: ModuleType, call: Call, clock: Clock, rounds: int = 7, library: bool = False) -> Shares:
    """Median device times of the parts of a call. A launcher called several times is summed; inner ones count as the outer.

    Each part is measured where it stands in the call, with a cold L2, so no intermediate result lives longer than it does
    anyway. Without `library` the operators outside the units are not measured.
    """
    found: list[Shares] = []
    with _timed_launchers(module, clock) as watch:
        for _ in range(rounds):
            watch.seen = Shares()
            if library:
                with watch:
                    call()
            else:
                call()
            found.append(watch.seen)
    units = {name: float(np.median([one.units.get(name, 0.0) for one in found])) for name in found[-1].units}
    return Shares(units, float(np.median([one.library for one in found])))


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Measures launchers, and as a mode the operators called outside them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.clock, self.seen, self.inside = clock, Shares(), False

    def launcher(self, name: str, run: Callable[[], Any]) -> Any:
        if self.inside:  # called by another launcher, whose time holds it
            return run()
        self.inside = True
        try:
            result, spent = self._measured(run)
        finally:
            self.inside = False
        self.seen.units[name] = self.seen.units.get(name, 0.0) + spent
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        free = func.is_view or func._schema.name.removeprefix("aten::").startswith(UNWRITTEN)
        if self.inside or free:
            return func(*args, **(kwargs or {}))
        result, spent = self._measured(lambda: func(*args, **(kwargs or {})))
        self.seen.library += spent
        return result

    def _measured(self, run: Callable[[], Any]) -> tuple[Any, float]:
        """The last result and the time: the clock may have to call again."""
        results: list[Any] = []
        spent = self.clock.device_ms(lambda: results.append(run()))
        return results[-1], spent


@contextmanager
def _timed_launchers(module: ModuleType, clock: Clock) -> Iterator[_Watch]:
    """The module with every `launch_NAME` measured by the yielded watch."""
    watch = _Watch(clock)
    launchers = {name: value for name, value in vars(module).items() if name.startswith("launch_") and callable(value)}

    def timed(name: str, launcher: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(launcher)
        def run(*args: Any, **kwargs: Any) -> Any:
            return watch.launcher(name.removeprefix("launch_"), lambda: launcher(*args, **kwargs))

        return run

    for name, launcher in launchers.items():
        setattr(module, name, timed(name, launcher))
    try:
        yield watch
    finally:
        for name, launcher in launchers.items():
            setattr(module, name, launcher)
