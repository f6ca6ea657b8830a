"""The checkpoint of a run on disk: the newest book, the state files that it names, the audit's record.

The book is one file that is replaced at once: that is the commit of a step. What no book names is rubbish, and is
removed when it is found. The folder may be on any file system that ``durable.remote`` knows.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from dadstorm.durable import files
from dadstorm.durable.files import Damaged
from dadstorm.errors import UserError
from dadstorm.spark.engine.book import Book, unused

BOOK = "book"


class Store:
    def __init__(self, folder: str, *, sync: bool, check: Callable[[], None]) -> None:
        """``sync``: what is committed has to survive the machine, not only this process; ``check`` raises if somebody
        else has taken the run over: ask before anything of a step is written."""
        self._sync = sync
        self.check = check
        self.state = os.path.join(folder, "state")
        self.audit = os.path.join(folder, "audit")
        self._path = os.path.join(folder, BOOK)
        with files.told("checkpoint", folder):
            for path in (self.state, self.audit):
                files.make_folder(path)

    def read(self) -> Book | None:
        """The newest book, if there is one; whatever it does not name is removed."""
        try:
            book = msgspec.msgpack.decode(files.read(self._path)[0], type=Book)
        except FileNotFoundError:
            book = None
        except OSError as error:
            raise UserError(f"checkpoint: cannot read {self._path}: {error.strerror or error}") from None
        except (Damaged, msgspec.DecodeError) as error:
            raise UserError(f"checkpoint: {error}. Restore it from a copy of your own, or begin anew") from None
        named = set() if book is None else book.state_files()
        with files.told("checkpoint", self.state):
            for name in list(files.names(self.state)):
                if name not in named:
                    files.remove(os.path.join(self.state, name))
        return book

    def write(self, before: Book, now: Book) -> None:
        """Commit: from now on a run goes on from here."""
        with files.told("checkpoint", self._path):
            files.write(self._path, msgspec.msgpack.encode(now), sync=self._sync)
        for name in unused(before, now):
            files.remove(os.path.join(self.state, name))
