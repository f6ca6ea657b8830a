"""A table of Spark's catalog over the folder of a sink: found by its name, and never more than what counts.

The table is an external one: the catalog knows where the rows are, and the folder stays what the manifest says it is,
with all its promises. Every commit is a partition of the table. It is registered after its file in the manifest is
there; one that has to leave is taken out of the catalog first. So whoever reads by name sees whole commits that count,
and no others. A new incarnation, or a new run, puts the catalog right before it goes on.

Where no catalog is named (a metastore, in ``conf``), the embedded Spark keeps one in the output folder. That serves one
Java process at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from dadstorm.errors import UserError
from dadstorm.plan import Field
from dadstorm.spark.commits import Commit
from dadstorm.spark.session import Session, reason
from dadstorm.spark.table import Header
from dadstorm.spark.writer import SPARK_TYPES, columns_of, options_of

IMPLEMENTATION = "spark.sql.catalogImplementation"
METASTORE = "spark.hadoop.javax.jdo.option.ConnectionURL"
WAREHOUSE = "spark.sql.warehouse.dir"
BY = "commit"


def embedded(conf: Mapping[str, str]) -> bool:
    """Whether the catalog is the one that we keep: these settings name no other."""
    return not any(key == IMPLEMENTATION or "metastore" in key or ".jdo." in key for key in conf)


def settings(conf: Mapping[str, str], folder: str) -> dict[str, str]:
    """The settings, and where the catalog is if they do not say: in ``folder``."""
    if not embedded(conf):
        return dict(conf)
    database = os.path.join(folder, "metastore")
    ours = {
        IMPLEMENTATION: "hive",
        METASTORE: f"jdbc:derby:;databaseName={database};create=true",
        WAREHOUSE: os.path.join(folder, "warehouse"),
    }
    return ours | dict(conf)


class CatalogTable:
    """The name under which a sink's table is known."""

    def __init__(self, name: str, path: str, header: Header) -> None:
        self._name = name
        self._sql = _dotted(name)
        self._path = path
        self._header = header

    def check(self, session: Session) -> None:
        """Whether the name is free, or ours. Raises UserError; changes nothing."""
        database = self._name.rpartition(".")[0] or "default"
        try:
            if not session.spark.catalog.databaseExists(database):
                raise UserError(f"table {self._name}: the catalog has no database {database}; make it first")
            if not session.spark.catalog.tableExists(self._name):
                return
            rows: Any = session.spark.sql(f"DESCRIBE TABLE EXTENDED {self._sql}").collect()
        except Exception as error:
            if isinstance(error, UserError) or session.lost(error):
                raise
            raise UserError(f"table {self._name}: {reason(error)}") from None
        told = {row[0]: row[1] for row in rows}
        if told.get("Type") != "EXTERNAL" or _plain(told.get("Location", "")) != os.path.realpath(self._path):
            found = f"{told.get('Type', 'another')} at {told.get('Location', 'no place')}"
            raise UserError(
                f"table {self._name} is in the catalog already and is not this sink's: found {found}; expected none, "
                f"or one at {self._path}: drop it, or give the sink another name"
            )

    def agree(self, session: Session, commits: Iterable[Commit], *, anew: bool) -> None:
        """Let the catalog know exactly these commits. ``anew``: whatever it knew is of an earlier run."""
        if anew:
            session.spark.sql(f"DROP TABLE IF EXISTS {self._sql}")
        session.spark.sql(self._create())
        wanted = {commit.name for commit in commits if commit.folder is not None}
        known = {
            str(row[0]).split("/")[0].removeprefix(f"{BY}=")
            for row in session.spark.sql(f"SHOW PARTITIONS {self._sql}").collect()
        }
        self._drop(session, sorted(known - wanted))
        if wanted - known:
            session.spark.sql(f"ALTER TABLE {self._sql} RECOVER PARTITIONS")

    def add(self, session: Session, commit: Commit) -> None:
        """A commit counts."""
        if commit.folder is None:
            return
        if self._header.partition_by:  # Each combination of values is a partition: Spark finds them.
            session.spark.sql(f"ALTER TABLE {self._sql} RECOVER PARTITIONS")
        else:
            session.spark.sql(f"ALTER TABLE {self._sql} ADD IF NOT EXISTS PARTITION ({BY}='{commit.name}')")

    def drop(self, session: Session, commits: Iterable[Commit]) -> None:
        """Commits are about to leave."""
        self._drop(session, [commit.name for commit in commits if commit.folder is not None])

    def _drop(self, session: Session, names: Iterable[str]) -> None:
        for name in names:
            session.spark.sql(f"ALTER TABLE {self._sql} DROP IF EXISTS PARTITION ({BY}='{name}')")

    def _create(self) -> str:
        header = self._header
        fields = [Field(name, kind) for name, kind in header.columns]  # type: ignore[arg-type]
        columns = [f"{_quoted(one.name)} {SPARK_TYPES[one.type]}" for one in columns_of(fields, header.with_id)]
        by = ", ".join(_quoted(name) for name in (BY, *header.partition_by))
        pairs = ", ".join(f"{_text(k)} {_text(v)}" for k, v in options_of(header.format, header.options).items())
        parts = [
            f"CREATE TABLE IF NOT EXISTS {self._sql} ({', '.join(columns)}, {BY} string)",
            f"USING {_dotted(header.format)}",
            f"OPTIONS ({pairs})" if pairs else "",
            f"PARTITIONED BY ({by}) LOCATION {_text(f'file://{self._path}')}",
        ]
        return " ".join(parts)


def _dotted(name: str) -> str:
    return ".".join(_quoted(part) for part in name.split("."))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _plain(location: str) -> str:
    return os.path.realpath(location.removeprefix("file://").removeprefix("file:"))
