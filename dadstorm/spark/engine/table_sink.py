"""A ``spark:`` sink of a run on Spark: written through the run's own session, one commit for each step."""

from __future__ import annotations

import msgspec

from dadstorm.plan import Operator, Plan
from dadstorm.sinks.base import Mark
from dadstorm.sinks.spark import SparkSink
from dadstorm.spark.engine.sessions import Sessions
from dadstorm.spark.session import Session


class TableSink(SparkSink):
    def __init__(
        self, operator: Operator, plan: Plan, sessions: Sessions, *, mark: Mark | None, cut: int, run: str, folder: str
    ) -> None:
        self._sessions = sessions
        at_once = msgspec.structs.replace(operator, params={**operator.params, "commit_every_ms": 0})
        super().__init__(at_once, plan, mark=mark, cut=cut, run=run, folder=folder)

    def _begin(self) -> Session:
        return self._sessions.now()

    def _leave(self, session: Session) -> None:
        """The session is not ours to close; if it has died, the run replaces it."""
