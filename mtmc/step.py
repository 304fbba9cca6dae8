"""Step: one edge of the Tree and one line of `steps.jsonl`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from mtmc.action import Action
from mtmc.verdict import Verdict, from_json

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Step:
    """`parent` and `child` are program keys; the root program has `parent == ""` and no action.

    `reward` is the graded reward of the child (None for infrastructure faults). `patch` is a unified diff from parent to
    child. `probabilities` maps legal action ids to the policy's probability, where the policy has one.
    """

    index: int
    parent: str
    child: str
    action: Action | None
    verdict: Verdict
    reward: float | None
    policy: str
    patch: str = ""
    changed_lines: int = 0
    library: tuple[str, ...] = ()
    assertions: tuple[str, ...] = ()
    predicted_ms: float | None = None
    seconds: float = 0.0
    cached: bool = False
    probabilities: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        data["action"] = asdict(self.action) if self.action else None
        data["verdict"] = self.verdict.to_json()
        return {"schema": SCHEMA_VERSION, **data}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Step:
        """Inverse of `to_json`. Raises ValueError for another schema version."""
        if data["schema"] != SCHEMA_VERSION:
            raise ValueError(f"steps of schema {data['schema']} cannot be read by this version (schema {SCHEMA_VERSION})")
        fields = {k: v for k, v in data.items() if k != "schema"}
        if fields["action"]:
            params = tuple((k, v) for k, v in fields["action"]["params"])
            fields["action"] = Action(**{**fields["action"], "params": params})
        fields["verdict"] = from_json(fields["verdict"])
        fields["library"], fields["assertions"] = tuple(fields["library"]), tuple(fields["assertions"])
        return Step(**fields)
