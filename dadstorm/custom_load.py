"""Finding the user's code by its name, and telling the user what is wrong with it.

``load`` turns the ``module.name`` of a topology into the object it names. Folders are searched before the ordinary
import path, as Python does for the folder of a script; they stay on the path afterwards, because a function may import
its helpers when it is called. A user's file may not carry the name of a module of Python's own or of one that is
already in use by somebody else: which of the two wins would depend on who imported first.

A *confined* process takes code only from the folders: the name came from somebody who may name what is there and
nothing else. Without that, ``os.system`` would be a function like any other, and ``mine.os.system`` too if ``mine``
imports it.

Everything that can go wrong here is a mistake in the user's files: ``UserError``, with the user's own file and line.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from dadstorm.errors import UserError

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_IMPORTER = os.path.dirname(os.path.abspath(importlib.__file__)) + os.sep
FRAMES_MAX = 20
"""What is shown of a traceback: a function that calls itself makes a thousand."""
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}\b")

_loaded: dict[str, tuple[str, int, int]] = {}
"""Top-level user modules imported so far, with file, time of change and size: another or an edited one is noticed."""


_confined = False


def confine() -> None:
    """From now on, in this process, take functions only from modules in the folders."""
    global _confined
    _confined = True


def module_problem(reference: str, folders: Sequence[str]) -> str | None:
    """Why the module of a reference is not in the folders; None if it is. Runs nothing."""
    parts = reference.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return f'custom "{reference}" is not a name of the form module.function or module.Class'
    if _file_in(parts[0], folders) is None:
        return _no_such_module(parts[0], folders, reference)
    return None


def _check_confined(reference: str, folders: Sequence[str], found: object) -> None:
    """Refuse what was not made in a module of the folders."""
    for part in (found, getattr(found, "__func__", found), getattr(found, "__self__", found)):
        home = str(getattr(part, "__module__", "")).partition(".")[0]
        file = _file_in(home, folders) if home.isidentifier() else None
        module = sys.modules.get(home)
        if file is None or module is None or not _same_file(module, file):
            raise UserError(f'custom "{reference}" is not made in a module of {", ".join(folders)}')


def load(reference: str, folders: Sequence[str]) -> object:
    """What ``module.name`` (or ``package.module.Class``, ``module.Class.method``) stands for; UserError if nothing.

    A method of a class is returned bound to a new instance of it."""
    parts = reference.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise UserError(f'custom "{reference}" is not a name of the form module.function or module.Class')
    folders = [os.path.abspath(folder) for folder in folders]
    if _confined and (problem := module_problem(reference, folders)):
        raise UserError(problem)
    _prepare(parts[0], folders, reference)
    found: Any = _import(parts[0], folders, reference)
    _remember(parts[0], folders, found)
    owner: Any = None
    for depth, part in enumerate(parts[1:], start=1):
        if not hasattr(found, part) and isinstance(found, ModuleType) and hasattr(found, "__path__"):
            path = ".".join(parts[: depth + 1])
            if importlib.util.find_spec(path) is not None:
                _import(path, folders, reference)
        if not hasattr(found, part):
            raise UserError(_no_such_name(found, ".".join(parts[:depth]), part, reference))
        owner, found = found, getattr(found, part)
        if _confined and not isinstance(found, ModuleType):
            _check_confined(reference, folders, found)
        elif _confined and found.__name__ != ".".join(parts[: depth + 1]):
            raise UserError(f'custom "{reference}": {part} is a module of its own, not a part of {parts[0]}')
    if isinstance(owner, type) and inspect.isfunction(found) and not isinstance(vars(owner).get(part), staticmethod):
        found = getattr(_instance(owner, reference), part)
    if isinstance(found, ModuleType) or not callable(found):
        kind = "a module" if isinstance(found, ModuleType) else f"a value of type {type(found).__name__}"
        raise UserError(f'custom "{reference}" is {kind}; expected a function or a class')
    return found


def describe(error: BaseException) -> str:
    """An exception as one deterministic text: its type and message, memory addresses blanked out."""
    name = type(error).__name__
    try:
        text = _ADDRESS.sub("0x…", str(error))
    except Exception as another:  # The message of a user's exception is the user's code too.
        text = f"(its message cannot be shown: {type(another).__name__})"
    return f"{name}: {text}" if text else name


def is_ours(file: str) -> bool:
    """Whether a frame in this file is DADSTORM's or the importer's, of no use to the user."""
    return file.startswith((_OURS, _IMPORTER, "<frozen "))


def user_frames(error: BaseException) -> list[str]:
    """The traceback without our own frames, outermost first: ``file:line in function: source``; of a long one the two
    ends."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [
        f"{frame.filename}:{frame.lineno} in {frame.name}" + (f": {frame.line}" if frame.line else "")
        for frame in frames
        if not is_ours(frame.filename)
    ]
    if len(lines) > FRAMES_MAX:
        half = FRAMES_MAX // 2
        lines = [*lines[:half], f"… {len(lines) - 2 * half} more", *lines[-half:]]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append(f"{error.filename}:{error.lineno}" + (f": {error.text.strip()}" if error.text else ""))
    return lines


def _prepare(name: str, folders: Sequence[str], reference: str) -> None:
    """Put the folders on the import path, and make room for a module of theirs."""
    for folder in reversed(folders):
        if folder in sys.path:
            sys.path.remove(folder)
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    file = _file_in(name, folders)
    if file is None:
        # The name may still stand for another topology's module, whose folder was searched earlier.
        if name in _loaded and not _is_on_path(_loaded[name][0], folders):
            _forget(name)
        return
    if name in sys.stdlib_module_names or name == "dadstorm":
        raise UserError(f'custom "{reference}": {file} has the name of a module of Python or DADSTORM; rename it')
    present = sys.modules.get(name)
    if present is None or _same_file(present, file):
        if name in _loaded and _loaded[name] != _stamp(file):
            _forget(name)
    elif name in _loaded:
        _forget(name)
    else:
        raise UserError(
            f'custom "{reference}": {file} has the name of a module that is already in use '
            f"({getattr(present, '__file__', None) or name}); rename it"
        )


def _remember(name: str, folders: Sequence[str], module: ModuleType) -> None:
    file = _file_in(name, folders)
    if file is not None and _same_file(module, file):
        _loaded[name] = _stamp(file)


def _forget(name: str) -> None:
    for module in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
        del sys.modules[module]
    del _loaded[name]


def _import(path: str, folders: Sequence[str], reference: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == path and not user_frames(error):
            raise UserError(_no_such_module(path, folders, reference)) from None
        where = "".join(f"\n  {frame}" for frame in user_frames(error))
        raise UserError(f'custom "{reference}": importing {path} raised {describe(error)}{where}') from None


def _instance(owner: type, reference: str) -> object:
    try:
        return owner()
    except Exception as error:
        where = "".join(f"\n  {frame}" for frame in user_frames(error))
        raise UserError(f'custom "{reference}": {owner.__name__}() raised {describe(error)}{where}') from None


def _no_such_module(path: str, folders: Sequence[str], reference: str) -> str:
    candidates: list[str] = []
    for folder in folders:
        if os.path.isdir(folder):
            for entry in sorted(os.listdir(folder)):
                stem, ending = os.path.splitext(entry)
                if ending == ".py" or (not ending and os.path.isfile(os.path.join(folder, entry, "__init__.py"))):
                    candidates.append(stem)
    places = ", ".join(folders) if folders else "the import path"
    text = f'custom "{reference}": there is no module {path} ({path}.py) in {places}'
    near = difflib.get_close_matches(path, candidates, n=1)
    return text + (f"; did you mean {near[0]}?" if near else "; give its folder with --lib")


def _no_such_name(found: object, path: str, part: str, reference: str) -> str:
    names = [name for name in dir(found) if not name.startswith("_")]
    file = getattr(found, "__file__", None)
    text = f'custom "{reference}": {path} has no "{part}"' + (f" ({file})" if file else "")
    near = difflib.get_close_matches(part, names, n=1)
    if near:
        return f"{text}; did you mean {near[0]}?"
    own = [name for name in names if callable(getattr(found, name, None))]
    return text + (f"; it has {', '.join(own[:8])}" if own else "")


def _file_in(name: str, folders: Sequence[str]) -> str | None:
    """The file that Python would import for a top-level name from these folders."""
    for folder in folders:
        for file in (os.path.join(folder, name, "__init__.py"), os.path.join(folder, name + ".py")):
            if os.path.isfile(file):
                return file
    return None


def _same_file(module: ModuleType, file: str) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and os.path.realpath(origin) == os.path.realpath(file)


def _is_on_path(file: str, folders: Sequence[str]) -> bool:
    return any(file.startswith(folder + os.sep) for folder in folders)


def _stamp(file: str) -> tuple[str, int, int]:
    status = os.stat(file)
    return (os.path.realpath(file), status.st_mtime_ns, status.st_size)
