"""``puppetmaster --attach``: find a run again that has lost its PuppetMaster, or take it from one that lives.

The PCSs are asked what runs there; the run that is meant is shown by each of its PCSs that answers, and together they
know all that the first PuppetMaster knew. Taking over is then one number: the new PuppetMaster's *reign* is higher than
any before it, and everybody, PCS and replica, follows the highest one he has heard of. Who is dead just now hears of it
when he is back. An earlier PuppetMaster that still lives is told, and ends; the run goes on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from dadstorm import __version__, logs
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import LOCAL, PCS_PORT, Plan
from dadstorm.topology.report import listed
from dadstorm.wire import control
from dadstorm.wire.address import host_of, is_loopback, is_tcp
from dadstorm.wire.endpoint import Endpoint
from dadstorm.wire.keys import CURE, Keys
from dadstorm.wire.keys import load as load_keys
from pcs.folders import make_folder
from puppetmaster.deployment import Deployment
from puppetmaster.hosts import REACH_S, Hosts, names, why_silent
from puppetmaster.preflight import bind_master
from puppetmaster.run import Interrupts, session_of
from puppetmaster.script import Script
from puppetmaster.script import load as script_of
from puppetmaster.session import Session

ID_DIGITS = 8
"""Of a run's token, for people: enough to tell runs apart."""


@dataclass(frozen=True, slots=True)
class AttachOptions:
    """What the user asked for."""

    run: str
    """The name or the ID of a run; empty: the only one there is."""
    pcs: tuple[str, ...]
    keys: str | None = None
    listen: str | None = None
    runs: str = "runs"
    script: str | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """A session on a run that was there before."""

    session: Session
    script: Script | None
    folder: str


@contextlib.contextmanager
def attached(
    options: AttachOptions, interrupts: Interrupts, say: Callable[[str], None], note: Callable[[str], None]
) -> Iterator[Attached]:
    """Take over a run; when the block is left without an error, it is over everywhere."""
    keys = None if options.keys is None else load_keys(options.keys)
    with interrupts.at_once():
        token = _chosen(options.run, _runs(_addresses(options.pcs), keys), note)
        plan, views = _shown(token, _addresses(options.pcs), keys)
        # The plan's own script was carried out by the first PuppetMaster.
        script = script_of(plan, options.script) if options.script is not None else None
    folder = make_folder(options.runs, plan.name)
    logs.configure(process="puppetmaster", file=os.path.join(folder, "puppetmaster.log"))
    endpoint = Endpoint(token, hears_answers=True, keys=keys)
    try:
        hosts = Hosts(plan, endpoint, token, None, keys=keys is not None)
        master, _ = bind_master(endpoint, hosts, "", options.listen)
        hosts.take_over(master, folder, max(view.reign for view in views) + 1)
        deployment = Deployment(plan, endpoint, hosts, folder, say, views[0].shake)
        deployment.attach(views, master)
        with session_of(deployment, folder, say, note) as session:
            note(f"attached to {plan.name} ({_id(token)}), {len(deployment.replicas)} replicas; logs in {folder}")
            idle = [op.name for index, op in enumerate(plan.operators) if not deployment.is_started(index)]
            if idle:
                note(f"not started yet: {', '.join(idle)} (Start lets them begin)")
            try:
                yield Attached(session, script, folder)
            finally:
                hosts.close()
    finally:
        endpoint.close(linger_ms=200)


def _addresses(pcs: Sequence[str]) -> list[str]:
    """Where the PCSs listen that the user named; by default that of this machine."""
    where = [one if is_tcp(f"tcp://{one}") else f"{one}:{PCS_PORT}" for one in pcs or ("127.0.0.1",)]
    for one in where:
        if not is_tcp(f"tcp://{one}"):
            raise UserError(f'--pcs "{one}": expected HOST or HOST:PORT')
    return [f"tcp://{one}" for one in where]


# -- which run --------------------------------------------------------------------------------------------------------


def _asked(
    addresses: Sequence[str], request: control.Message, keys: Keys | None
) -> tuple[dict[str, control.Message], dict[str, str]]:
    """What PCSs answer to a question, and why the others do not."""
    endpoints = {address: Endpoint(control.PUBLIC, hears_answers=True, keys=keys) for address in addresses}
    answers: dict[str, control.Message] = {}
    problems: dict[str, str] = {}
    try:
        for address, endpoint in endpoints.items():
            if keys is None and not is_loopback(host_of(address)):
                problems[address] = f"it is another machine, and there are no keys: {CURE}"
            else:
                endpoint.send(address, request)
        deadline = time.monotonic() + REACH_S
        while len(answers) + len(problems) < len(endpoints) and time.monotonic() < deadline:
            for address, endpoint in endpoints.items():
                for item in endpoint.receive(0 if address in answers else 20)[0]:
                    if isinstance(item.message, control.Running | control.Shown):
                        answers[address] = item.message
        for address, endpoint in endpoints.items():
            if address not in answers and address not in problems:
                problems[address] = why_silent(endpoint, address, keys=keys is not None)
    finally:
        for endpoint in endpoints.values():
            endpoint.close()
    return answers, problems


def _runs(addresses: Sequence[str], keys: Keys | None) -> dict[bytes, control.RunHere]:
    """What runs at these PCSs, by token. UserError if none of them answers, or one is of another version."""
    answers, problems = _asked(addresses, control.Runs(), keys)
    told = [f"PCS {address.removeprefix('tcp://')}: {problem}" for address, problem in problems.items()]
    running = {address: answer for address, answer in answers.items() if isinstance(answer, control.Running)}
    told += [
        f"PCS {address.removeprefix('tcp://')}: it has DADSTORM {answer.version}, and this is {__version__}: install "
        "the same"
        for address, answer in running.items()
        if answer.version != __version__
    ]
    if told and (not answers or len(told) > len(problems)):
        raise UserError(*told)
    return {run.run: run for answer in running.values() for run in answer.runs}


def _chosen(wanted: str, found: dict[bytes, control.RunHere], note: Callable[[str], None]) -> bytes:
    """The token of the run that is meant."""
    if not found:
        raise UserError("nothing runs there: no run to attach to (--pcs HOST:PORT says where to look)")
    fitting = [token for token, run in found.items() if wanted in ("", run.name, _id(token))]
    if len(fitting) == 1:
        return fitting[0]
    note(table(found.values()))
    if fitting:
        which = f"{len(fitting)} runs are there; which one?"
        raise UserError(f"{which} puppetmaster --attach {_id(fitting[0])}, with the ID (or the name) of yours")
    raise UserError(f'no run "{wanted}" is there: expected {listed([run.name for run in found.values()])}, or an ID')


def _id(token: bytes) -> str:
    return token.hex()[:ID_DIGITS]


def table(found: Iterable[control.RunHere]) -> str:
    """Runs, for people to choose from."""
    rows = [("id", "run", "hosts", "since", "PuppetMaster", "logs there")]
    for run in found:
        master = "there" if run.silent_s < REACH_S else f"silent for {run.silent_s:.0f} s"
        rows.append((_id(run.run), run.name, " ".join(run.hosts), f"{run.since_s:.0f} s", master, run.folder))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _shown(token: bytes, addresses: Sequence[str], keys: Keys | None) -> tuple[Plan, list[control.Shown]]:
    """The plan of a run, and how each of its PCSs that answers sees it."""
    answers, _ = _asked(addresses, control.Show(token), keys)
    views = [answer for answer in answers.values() if isinstance(answer, control.Shown)]
    if not views:
        raise RunFailed("the run is over: it ended just now")
    plan = msgspec.msgpack.decode(views[0].plan, type=Plan)
    if LOCAL in names(plan):
        raise UserError(
            f"{plan.name} has replicas on localhost, at the PuppetMaster that started it, and ends with it. To be able "
            "to attach, run everything at PCSs: dadstorm run FILE --pcs HOST"
        )
    others = [f"tcp://{name}" for name in names(plan) if name not in {view.host for view in views}]
    answers, _ = _asked(others, control.Show(token), keys)
    views += [answer for answer in answers.values() if isinstance(answer, control.Shown)]
    if not any(view.news.directory for view in views):
        raise UserError(f"{plan.name} is just being deployed by its PuppetMaster; try again when it is started")
    return plan, views
