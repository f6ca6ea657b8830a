"""What a PCS lets the plans of others do on its host.

A plan that comes over the wire is somebody's wish. Code comes only from the folders that the PCS's own operator gave
with ``--lib``, data is read only below ``--data``, results and the state of durable runs are written only below
``--out``, logs and journals only to a folder that the PCS makes, and replicas listen only on the PCS's own address.
Names that become parts of paths are names, not paths. What is not known here is refused: a new kind of operator has to
be thought about first.

Paths are compared after links are followed. Nobody can put a link there through DADSTORM; who can write to these
folders otherwise is the operator's choice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dadstorm.chains import JOINT
from dadstorm.custom_load import module_problem
from dadstorm.errors import UserError
from dadstorm.lanes import BUILT_IN
from dadstorm.plan import REPLICAS_MAX as RING_MAX
from dadstorm.plan import SLICES_MAX, SPARK_FORMATS, Operator, Plan
from dadstorm.spark import java
from dadstorm.wire.address import host_of, is_loopback, is_tcp, numeric
from pcs.checks import file_problem, port_problems, replicas_on

PLAN_BYTES_MAX = 8 << 20
"""Ten thousand paths of files are one megabyte."""
OPERATORS_MAX = 10_000
NESTS = ".pcs-"
"""How the private folders of PCSs below ``runs`` begin."""
KINDS = (*BUILT_IN, "custom")
_RUN = re.compile(r"[0-9a-f]{0,64}\Z")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\Z")


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator of a PCS has allowed. ``None`` in its place: the PCS belongs to who asks."""

    host: str
    """The address that the PCS and its replicas listen on."""
    runs: str
    libs: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    out: tuple[str, ...] = ()
    keys: bool = False

    def problems(self, plan: Plan, host: str, *, ports: bool = True) -> list[str]:
        """All that keeps this plan from running on this host; whatever is in it. Its ``ports`` must be free, unless it
        runs already."""
        try:
            return self._problems(plan, host, ports)
        except UserError as error:
            return [str(error)]
        except (TypeError, KeyError, ValueError, AttributeError, IndexError, OSError) as error:
            return [f"the plan makes no sense: {type(error).__name__}: {error}"]

    def _problems(self, plan: Plan, host: str, ports: bool) -> list[str]:
        problems = _shape(plan)
        if problems:
            return problems
        mine = {peer.operator for peer in replicas_on(plan, host)}
        if mine and plan.durable is not None:
            problem = self._writable("durable", plan.durable.folder)
            problems += [problem] if problem else []
        for operator in (plan.operators[index] for index in sorted(mine)):
            problems += self._operator(operator)
            for replica in operator.replicas:
                if replica.host == host and replica.address is not None:
                    problems += self._address(f"operator {operator.name}", replica.address)
        return problems or (port_problems(plan, host, keys=self.keys) if ports else [])

    def operator(self, operator: Operator) -> list[str]:
        """All that keeps an operator of a plan that runs here already, on other hosts, from running on this one."""
        try:
            return self._operator(operator)
        except UserError as error:
            return [str(error)]

    def _operator(self, operator: Operator) -> list[str]:
        if operator.members:
            return [problem for member in operator.members for problem in self._operator(member)]
        if operator.kind == "source":
            return self._source(operator)
        if operator.kind == "sink":
            return self._sink(operator)
        if operator.kind == "custom":
            return self._custom(operator)
        return [] if operator.kind in KINDS else [f"operator {operator.name}: this PCS knows no {operator.kind}"]

    def _source(self, operator: Operator) -> list[str]:
        kind, what = operator.params["type"], f"source {operator.name}"
        if kind == "generate":
            return []
        if kind == "file":
            return [p for path in operator.params["paths"] if (p := self._readable(what, path))]
        if kind == "tcp":
            journal = operator.params.get("journal")
            problem = self._writable(what, journal) if journal is not None else None
            return [*([problem] if problem else []), *self._address(what, f"tcp://{operator.params['listen']}")]
        if kind == "stdin":
            return [f"{what}: standard input is where the PuppetMaster is: place it there (on: localhost)"]
        if kind == "spark":
            return self._spark_source(operator, what)
        return [f"{what}: this PCS knows no {kind}"]

    def _spark_source(self, operator: Operator, what: str) -> list[str]:
        """Files of Spark's own formats, read as they are: settings, options and queries can do anything."""
        params = operator.params
        further = any(params.get(key) for key in ("conf", "options", "schema", "stream"))
        if further or params["format"] not in SPARK_FORMATS:
            kinds = f"files of the formats {', '.join(SPARK_FORMATS)}"
            return [f"{what}: this PCS lets Spark read {kinds} only, without conf, options, schema and stream"]
        if not str(params.get("master", "local")).startswith("local"):
            return [f"{what}: this PCS runs Spark embedded: leave out master"]
        # Spark's patterns can lead out of a folder in more ways than one.
        unreadable = [path for path in params["paths"] if not below(path, self.data) or set(path) & set("{}[]*?\\")]
        problems = [f"{what}: {path!r} is no file or folder below one that this PCS may read" for path in unreadable]
        journal = params.get("journal")
        problem = (self._writable(what, journal) if journal is not None else None) or java.problem()
        return problems or ([problem] if problem else [])

    def _sink(self, operator: Operator) -> list[str]:
        if operator.params["format"] == "console":
            return []
        what = f"sink {operator.name}"
        places = (operator.params["path"], operator.params.get("catalog"))
        problem = next((told for place in places if place and (told := self._writable(what, place))), None)
        if problem is None and operator.params["format"] == "spark":
            # Settings can name code to be loaded, and programs to be started.
            if operator.params.get("conf") or not str(operator.params.get("master", "local")).startswith("local"):
                problem = f"{what}: this PCS runs Spark embedded and as it is: leave out conf and master"
            elif missing := java.problem():
                problem = f"{what}: {missing}; {java.WITHOUT}"
        return [problem] if problem else []

    def _custom(self, operator: Operator) -> list[str]:
        if not self.libs:
            return [f"operator {operator.name}: this PCS has no folder for CUSTOM modules; start it with --lib DIR"]
        problem = module_problem(operator.params["function"], self.libs)
        return [f"operator {operator.name}: {problem}"] if problem else []

    def _address(self, what: str, address: str) -> list[str]:
        if not is_tcp(address):
            return [f"{what}: {address!r} is no address"]
        host = host_of(address)
        if is_loopback(host) or numeric(host) == numeric(self.host):
            return []
        return [f"{what}: {address} is not this host, which is {self.host}"]

    def _readable(self, what: str, path: str) -> str | None:
        if not below(path, self.data):
            return f"{what}: {path!r} is not below a folder that this PCS may read; start it with --data DIR"
        problem = file_problem(path)
        return f"{what}: {problem}" if problem else None

    def _writable(self, what: str, path: str) -> str | None:
        nests = os.path.join(os.path.realpath(self.runs), NESTS)
        if below(path, self.out) and not os.path.realpath(path).startswith(nests):
            return None
        return f"{what}: {path!r} is not below a folder that this PCS may write; start it with --out DIR"

    def confined(self, plan: Plan) -> Plan:
        """The plan as it runs here: its own folders of modules are replaced by ours."""
        folders = self.libs or (os.path.join(self.runs, "no modules"),)
        return msgspec.structs.replace(plan, base=folders[0], libs=tuple(folders[1:]))


def decoded(plan: bytes) -> Plan:
    """The plan in a message; UserError if there is none."""
    if len(plan) > PLAN_BYTES_MAX:
        raise UserError(f"a plan of {len(plan)} bytes; expected at most {PLAN_BYTES_MAX}")
    try:
        return msgspec.msgpack.decode(plan, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"the plan cannot be read: {error}") from None


def below(path: str, folders: Sequence[str]) -> bool:
    """Whether a path lies in one of the folders, links followed."""
    if not isinstance(path, str) or "\0" in path or not os.path.isabs(path):
        return False
    real = os.path.realpath(path)
    return any(os.path.commonpath([real, top]) == top and real != top for top in map(os.path.realpath, folders))


def _shape(plan: Plan) -> list[str]:
    """What no plan that our compiler made looks like."""
    if not 1 <= len(plan.operators) <= OPERATORS_MAX:
        return [f"a plan with {len(plan.operators)} operators"]
    names = [operator.name for operator in plan.operators]
    problems = [f"{name[:100]!r} is no name" for name in names if not _is_name(name)]
    problems += [] if _NAME.match(plan.name) else [f"{plan.name[:100]!r} is no name"]
    problems += [f"operator {one.name[:100]!r}: is no chain of its members" for one in plan.operators if not _fits(one)]
    problems += [
        f"operator {operator.name[:100]!r}: {len(operator.replicas)} replicas, {operator.slices} slices"
        for operator in plan.operators
        if not (1 <= len(operator.replicas) <= RING_MAX and 1 <= operator.slices <= SLICES_MAX)
    ]
    if plan.durable is not None and not _RUN.match(plan.durable.run):
        problems.append(f"{plan.durable.run[:100]!r} is no run")
    if len(set(names)) < len(names):
        problems.append("two operators with one name")
    return problems


def _is_name(name: str) -> bool:
    return len(name) <= 200 and all(_NAME.match(part) for part in name.split(JOINT))


def _fits(operator: Operator) -> bool:
    """Whether an operator is what its members make it, if it has any."""
    members, kinds = operator.members, [member.kind for member in operator.members]
    if not members:
        return operator.kind != "chain" and JOINT not in operator.name
    return (
        operator.name == JOINT.join(member.name for member in members)
        and operator.kind == ("source" if kinds[0] == "source" else "chain")
        and operator.params == members[0].params
        and set(kinds[1:]) <= set(BUILT_IN)
        and kinds[0] in (*BUILT_IN, "source")
        and not any(member.members for member in members)
    )
