"""The errors of the project: one class per boundary, and two guards.

A message is one sentence meant for the user. Failures of a *candidate* are never exceptions: they are values of
`mtmc.verdict.Verdict`.
"""

import sys
from collections.abc import Callable

BAD_INPUT, UNVERIFIED, UNFINISHED = 2, 3, 75  # exit codes; the last is EX_TEMPFAIL of sysexits.h: try again


class MtmcError(Exception):
    """Base of every error raised on purpose."""


class BadInput(MtmcError):
    """The user's file, option or value cannot be used; the command exits with 2."""


class Illegal(MtmcError):
    """An action does not apply to a program. The only error a rule may raise."""


class InfraError(MtmcError):
    """The machine failed us (no memory on the host, a lost worker); says nothing about a candidate."""


class OutOfTime(MtmcError):
    """The time that a command was given is over; what is done is kept, and the same command goes on."""

    def __init__(self) -> None:
        super().__init__("the time is over: the same command goes on from here")


CODES: dict[type[MtmcError], int] = {BadInput: BAD_INPUT, InfraError: UNVERIFIED, OutOfTime: UNFINISHED}


def check(condition: bool, message: str) -> None:
    """Raise `Illegal(message)` unless `condition` holds."""
    if not condition:
        raise Illegal(message)


def guarded(command: Callable[[], object]) -> None:
    """Run a command; errors meant for the user become one sentence on stderr and an exit code."""
    try:
        command()
    except tuple(CODES) as error:
        print(f"mtmc: {error}", file=sys.stderr)
        sys.exit(next(code for kind, code in CODES.items() if isinstance(error, kind)))
