"""Ways to break how state is kept: snapshots that are settled wrongly, or come back incomplete (see ``mutants``)."""

from __future__ import annotations

import pyarrow as pa
from breaking import Patches, mutant

from dadstorm.core import vault
from dadstorm.core.numbered import SLOT, Numbered
from dadstorm.core.vault import Delta, Vault


@mutant
def marks_are_forgotten() -> Patches:
    """A sink resumes at its cut, but at the beginning of its file."""
    usual = Vault.base

    def base(self: Vault) -> Delta:
        found = usual(self)
        return Delta(found.cut, found.table, None)

    yield Vault, "base", base


@mutant
def folding_keeps_the_older_value() -> Patches:
    """Of two rows of a key, the wrong one survives."""
    usual = vault.fold

    def fold(tables: list[pa.RecordBatch], forget: bool) -> pa.RecordBatch:
        return usual(list(reversed(tables)), forget)

    yield vault, "fold", fold


@mutant
def what_changed_is_not_written_over_what_was() -> Patches:
    """Of keys that are numbered, only new ones are settled."""
    usual = Numbered.write

    def write(self: Numbered, table: pa.RecordBatch) -> bool:
        slots = table.column(SLOT).to_numpy() if SLOT in table.schema.names else None
        return usual(self, table if slots is None else table.filter(pa.array(slots >= self._size)))

    yield Numbered, "write", write


@mutant
def folding_forgets_what_did_not_change() -> Patches:
    """Only the newest table survives."""
    usual = vault.fold
    yield vault, "fold", lambda tables, forget: usual(list(tables)[-1:], forget)
