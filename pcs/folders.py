"""Folders of runs: ``<runs>/<name>-<number>``, each made once."""

from __future__ import annotations

import os

from dadstorm.errors import UserError


def make_folder(runs: str, name: str) -> str:
    """A new folder for a run's logs and journals; the name has been checked to be one."""
    number = 1
    while True:
        folder = os.path.abspath(os.path.join(runs, f"{name}-{number}"))
        try:
            os.makedirs(folder)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise UserError(
                f"cannot make the folder {folder} for logs: {error.strerror}. Give another with --runs DIR"
            ) from None
