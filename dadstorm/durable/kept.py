"""A durable run as a whole: which topology it is of, how often it was started, whether it has ended.

``run.state``, the manifest, says so. It is written when a run starts (or is resumed) and when it has ended; what stands
in a run's own folder counts only while the manifest names that run and says that it has not ended.

A lock keeps two PuppetMasters apart. (That the processes of an earlier life are gone is seen to by the replicas, on
each host: see ``disk``.) Other file systems than a disk have no locks: there the newest life is the one that counts,
and who commits looks first whether it still is.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from dadstorm.durable import files, remote
from dadstorm.durable.files import Damaged
from dadstorm.errors import RunFailed, UserError
from dadstorm.plan import Durable, Plan

MANIFEST = "run.state"
LOCK = "lock"
FREE = ("listen", "rate", "fsync")
"""Parameters that may change between two lives: they change nothing of what comes out."""


class Manifest(msgspec.Struct, frozen=True):
    name: str
    run: str
    life: int
    ended: bool
    topology: dict[str, Any]
    """All that decides what comes out, see ``matters``."""


class Kept:
    """A plan's durable run, seen from who starts it; nothing to do for a plan that is not durable."""

    def __init__(self, plan: Plan, manifest: Manifest | None) -> None:
        self.plan = plan
        self._manifest = manifest

    def started(self) -> None:
        """From now on there is something to resume."""
        if self._manifest is not None:
            _write(self.plan, self._manifest)

    def check(self) -> None:
        """Raises RunFailed if somebody else goes on with the run, which no lock could keep him from."""
        durable = self.plan.durable
        if durable is None or not remote.is_remote(durable.folder):
            return
        try:
            now = _read(durable.folder)
        except UserError as error:
            raise RunFailed(str(error)) from None
        if now is None or (now.run, now.life) != (durable.run, durable.life):
            raise RunFailed(f"somebody else goes on with the run in {durable.folder}: this one stops")

    def never_began(self) -> None:
        """It did not come to a start: there is nothing to resume that was not there before."""
        if self.plan.durable is not None and self.plan.durable.life == 1:
            ended(self.plan)


def ended(plan: Plan) -> bool:
    """A plan's run is complete: make known that there is nothing to resume. False if the manifest is not here to say
    so, because the run was started on another machine."""
    if plan.durable is None:
        return True
    manifest = _read(plan.durable.folder)
    if manifest is None or (manifest.run, manifest.life) != (plan.durable.run, plan.durable.life):
        return False
    _write(plan, msgspec.structs.replace(manifest, ended=True))
    return True


@contextmanager
def kept(plan: Plan, *, resume: bool) -> Iterator[Kept]:
    """The run that a plan begins or, with ``resume``, goes on with; its folder is locked meanwhile."""
    if plan.durable is None:
        if resume:
            raise UserError(
                "--resume: the topology does not say durable: DIR, so nothing of a run was kept. Run it from the "
                "beginning; with durable: it can be resumed the next time"
            )
        yield Kept(plan, None)
        return
    folder = plan.durable.folder
    if resume and _read(folder) is None:
        raise UserError(f"--resume: there is nothing to go on with in {folder}: no run was started. {_ANEW}")
    with _reached(folder) if remote.is_remote(folder) else _locked(folder):
        durable, manifest = _next(plan, folder, resume)
        begun = Kept(msgspec.structs.replace(plan, durable=durable), manifest)
        yield begun
        after = _read(folder)
        if after is not None and after.ended:  # Whatever is left of it is of no more use.
            files.remove_folder(durable.place)


_ANEW = "Run without --resume to begin"


def _next(plan: Plan, folder: str, resume: bool) -> tuple[Durable, Manifest]:
    """Which run comes now, and in which life."""
    before = _read(folder)
    now = matters(plan)
    if not resume:
        if before is not None and not before.ended:
            raise UserError(
                f"durable: {folder} holds a run of {before.name} that has not ended. Go on with it: --resume; or "
                "remove the folder to begin anew"
            )
        run = secrets.token_hex(8)
        return Durable(folder, run, 1), Manifest(plan.name, run, 1, False, now)
    if before is None or before.ended:
        raise UserError(f"--resume: there is nothing to go on with in {folder}: the last run is complete. {_ANEW}")
    changes = list(differences(before.topology, now))
    if changes:
        raise UserError(
            f"--resume: the topology is not the one that the run in {folder} was started with. Change it back, or "
            "remove the folder to begin anew:",
            *(f"  {change}" for change in changes),
        )
    life = before.life + 1
    return Durable(folder, before.run, life), Manifest(plan.name, before.run, life, False, now)


def _write(plan: Plan, manifest: Manifest) -> None:
    assert plan.durable is not None
    path = os.path.join(plan.durable.folder, MANIFEST)
    with files.told("durable", path):
        files.write(path, msgspec.msgpack.encode(manifest))


def _read(folder: str) -> Manifest | None:
    path = os.path.join(folder, MANIFEST)
    try:
        return msgspec.msgpack.decode(files.read(path)[0], type=Manifest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"durable: cannot read {path}: {error.strerror or error}") from None
    except (Damaged, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(
            f"durable: {error}. Restore {path} from a copy of your own, or remove {folder} and run from the beginning"
        ) from None


def matters(plan: Plan) -> dict[str, Any]:
    """What of a plan decides what comes out and how its state is split: not where anything runs, and how fast."""
    operators = {}
    for operator in plan.operators:
        told = msgspec.to_builtins(operator)
        del told["name"], told["replicas"], told["members"]
        told["params"] = {key: value for key, value in told["params"].items() if key not in FREE}
        operators[operator.name] = told
    whole = {"semantics": plan.semantics, "seed": plan.seed, "span": plan.span, "operators": operators}
    plain: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(whole))
    return plain


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Each thing that differs, in words."""
    for key in sorted((before.keys() | now.keys()) - {"operators"}):
        if before.get(key) != now.get(key):
            yield f"{key}: was {before.get(key)}, is {now.get(key)}"
    old, new = before.get("operators", {}), now["operators"]
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{name}: is gone"
        elif name not in old:
            yield f"{name}: is new"
        else:
            yield from _differences_of(name, _flat(old[name]), _flat(new[name]))


def _flat(operator: dict[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in operator.items() if key != "params"}, **operator["params"]}


def _differences_of(name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield f"{name}: {key}: was {_short(old.get(key))}, is {_short(new.get(key))}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


# -- the lock --------------------------------------------------------------------------------------------------------


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """No other PuppetMaster is at it."""
    path = os.path.join(folder, LOCK)
    try:
        files.make_folder(folder)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        where = error.filename or path
        raise UserError(f"durable: cannot write {where}: {error.strerror or error}; choose another folder") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"durable: {folder} is in use by another run; wait for its end") from None
        yield
    finally:
        os.close(file)


@contextmanager
def _reached(folder: str) -> Iterator[None]:
    """A folder of another file system, which can be used."""
    try:
        remote.check(folder)
    except (OSError, ValueError) as error:
        raise UserError(f"durable: cannot use {folder}: {error}") from None
    yield
