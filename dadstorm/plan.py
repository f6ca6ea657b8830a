"""The plan: a topology compiled, with every choice made.

The topology is what the user wrote; the plan is what runs. It is plain data (it travels to every replica as msgpack),
and a pure function of the topology: field types, slices, effective routing, ID bits, replicas and hosts are all
settled here, so that no replica decides anything by itself. ``dadstorm check`` prints it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dadstorm.core.line import Packing
from dadstorm.core.ports import DEAD_LETTERS, MAIN

if TYPE_CHECKING:
    import pyarrow as pa

FieldType = Literal["string", "int", "float", "bool", "timestamp"]
Semantics = Literal["at-most-once", "at-least-once", "exactly-once"]
Policy = Literal["primary", "random", "hashing"]
OnError = Literal["fail", "skip", "dead-letter"]
LoggingLevel = Literal["light", "full"]
Recovery = Literal["respawn", "spread"]

LOCAL = "localhost"
"""The host where the PuppetMaster is."""
PCS_PORT = 10000
"""Where the PCS of a host listens if nothing else is said."""
MASTER_PORT = 10001
"""And the PuppetMaster, if it has to do with other hosts."""
REPLICAS_MAX = 256
SLICES_MAX = 1024
"""Two neighbours have slices × slices channels; beyond this the channels cost more than the rows."""
SPARK_FORMATS = ("parquet", "json", "csv", "orc", "text", "xml", "avro")
"""Formats of files that Spark knows by itself."""


class Field(msgspec.Struct, frozen=True):
    name: str
    type: FieldType = "string"


class Input(msgspec.Struct, frozen=True):
    """One input of an operator: another operator's output port."""

    operator: str
    port: int = MAIN
    align: int = 0


class Routing(msgspec.Struct, frozen=True):
    """How an operator's input is spread over its slices; ``key`` holds field positions (from 0) for ``hashing``."""

    policy: Policy = "primary"
    key: tuple[int, ...] = ()


class Replica(msgspec.Struct, frozen=True):
    """Where one replica runs: its host, and the endpoint it binds if the user fixed one (tcp://HOST:PORT)."""

    host: str
    address: str | None = None


class Operator(msgspec.Struct, frozen=True):
    """A vertex of the DAG. ``kind`` is ``source``, ``sink``, or an operator's name in lower case; ``params`` is what
    the implementation of that kind asks for, already checked."""

    name: str
    kind: str
    params: dict[str, Any]
    inputs: tuple[Input, ...]
    fields: tuple[Field, ...]
    """Output fields; a sink's are those it writes."""
    slices: int
    replicas: tuple[Replica, ...]
    routing: Routing
    input_bits: int = 0
    output_bits: int = 0
    on_error: OnError = "fail"
    members: tuple[Operator, ...] = ()
    """The operators that it is a chain of (see ``chains``), which all run in its slices; none if it is but itself."""

    @property
    def head(self) -> Operator:
        """The operator that the rows come to first: of a source's chain, the source."""
        return self.members[0] if self.members else self

    @property
    def has_state(self) -> bool:
        """Whether what it makes of a tuple depends on those before."""
        own = self.kind in ("count", "uniq") or self.params.get("mode") == "keyed"
        return own or any(member.has_state for member in self.members)

    @property
    def schema(self) -> pa.Schema:
        from dadstorm.core.schemas import schema_of  # Arrow takes long to load, and a plan is plain data.

        return schema_of(self.fields)

    @property
    def packing(self) -> Packing:
        return Packing(tuple(i.align for i in self.inputs), self.input_bits, self.output_bits)

    def port_schema(self, port: int) -> pa.Schema:
        if port != DEAD_LETTERS:
            return self.schema
        from dadstorm.core.kernel import DEAD  # As above.

        return DEAD

    def home(self, slice_index: int) -> int:
        """The replica that hosts a slice at first: slices in contiguous, equal runs."""
        return slice_index * len(self.replicas) // self.slices if self.slices >= len(self.replicas) else slice_index


class ScriptLine(msgspec.Struct, frozen=True):
    """A command as the topology has it, and where. What commands mean is the PuppetMaster's business."""

    text: str
    file: str
    line: int


class Durable(msgspec.Struct, frozen=True):
    """That snapshots also go to disk, and where: below a folder, apart for each run."""

    folder: str
    run: str = ""
    """Which run: as many hexadecimal digits as nobody else has drawn. Drawn when it starts, kept when it is resumed."""
    life: int = 1
    """How many times the run has been started: more than once means that it goes on from its disk."""

    @property
    def place(self) -> str:
        """The folder of the run."""
        return f"{self.folder}/run-{self.run}"


class Plan(msgspec.Struct, frozen=True):
    name: str
    operators: tuple[Operator, ...]
    """In topological order: producers before consumers."""
    semantics: Semantics = "exactly-once"
    window_rows: int = 1 << 20
    window_bytes: int = 20 << 20
    snapshot_every_ms: int = 1000
    flush_every_ms: int = 100
    span: int = 1 << 16
    seed: int = 0
    logging: LoggingLevel = "light"
    base: str = "."
    """Folder of the topology file: relative paths in it start here."""
    libs: tuple[str, ...] = ()
    """Folders where CUSTOM modules are looked for, after ``base``."""
    warnings: tuple[str, ...] = ()
    suspect_after_ms: int = 1000
    backups: int = 0
    """How many peers hold copies of each slice; 0: all of them."""
    script: tuple[ScriptLine, ...] = ()
    """Commands that the topology brings along."""
    hosts: dict[str, str] = {}
    """What the topology calls its hosts: per name, HOST:PORT of its PCS."""
    audit: bool = False
    """Record digests, and compare what is done again with what was done before."""
    recovery: Recovery = "respawn"
    """Whether a lost replica is started again, or its slices are spread over its living peers."""
    durable: Durable | None = None
    """Whether, and where, the run survives the death of everybody."""
    chain: bool = True
    """Whether operators may run together (see ``chains``)."""

    @property
    def continues(self) -> bool:
        """Whether the run goes on from its disk, after everybody has died."""
        return self.durable is not None and self.durable.life > 1

    def __getitem__(self, name: str) -> Operator:
        """The operator of that name, or the member of a chain."""
        for operator in self.operators:
            for one in (operator, *operator.members):
                if one.name == name:
                    return one
        raise KeyError(name)

    def called(self, name: str) -> str | None:
        """The operator that somebody means by a name, in whatever case: it, or the chain that it is a member of."""
        for exact in (True, False):
            for operator in self.operators:
                for one in (operator, *operator.members):
                    if one.name == name or (not exact and one.name.lower() == name.lower()):
                        return operator.name
        return None

    def consumers(self, name: str) -> list[tuple[Operator, int]]:
        """Every (consumer, its input index) that reads any port of an operator."""
        return [(op, i) for op in self.operators for i, link in enumerate(op.inputs) if link.operator == name]

    def index(self, name: str) -> int:
        """An operator's place in the plan: how messages name it."""
        return next(i for i, operator in enumerate(self.operators) if operator.name == name)

    def sub_bits(self, name: str) -> int:
        """How wide the subs of an operator's output are: what its widest path has packed into them."""
        operator = self[name]
        return operator.output_bits + self.entered_bits(operator)

    def entered_bits(self, operator: Operator) -> int:
        """How wide subs are inside an operator, once its inputs are aligned and numbered."""
        # Producers first, each once: a walk back along every path would double with each diamond.
        entered: dict[str, int] = {}
        made: dict[str, int] = {}
        for one in self.operators:
            entered[one.name] = one.input_bits + max((i.align + made[i.operator] for i in one.inputs), default=0)
            made[one.name] = entered[one.name] + one.output_bits
            if one.name == operator.name:
                break
        return entered[operator.name]

    def input_schema(self, operator: Operator) -> pa.Schema:
        """What the operator's rows look like on arrival: all inputs agree in types; names are the first input's."""
        first = operator.inputs[0]
        return self[first.operator].port_schema(first.port)
