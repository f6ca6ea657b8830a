"""What stands beside data in a folder and says what it is: a small file of JSON, there as a whole or not at all."""

from __future__ import annotations

import os
from typing import Protocol, TypeVar

import msgspec

from dadstorm.errors import UserError
from dadstorm.sinks.disk import sync, sync_folder


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


Header = TypeVar("Header", bound=Versioned)


def load(path: str, kind: type[Header], version: int) -> Header | None:
    """What a file says; None: there is none. Raises UserError for one that is not ours."""
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if found.version != version:
        raise UserError(f"{path} is of version {found.version}; expected {version}")
    return found


def put(path: str, content: bytes, fsync: bool) -> None:
    """Write a file at once: whoever looks sees the old one or the new one."""
    with open(f"{path}.tmp", "wb") as file:
        file.write(content)
        if fsync:
            sync(file)
    os.replace(f"{path}.tmp", path)
    if fsync:
        sync_folder(os.path.dirname(path))
