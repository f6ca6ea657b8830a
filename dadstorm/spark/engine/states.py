"""The state of slices in files: what a step leaves for the next one, and for whoever comes back after a crash.

Each slice has a short list of files, the changes of some steps each, older ones first and at least twice as large as
the next: a step adds one, and folds those into it that would not be. Files are never changed and their names never
come twice, so nobody who still works at a step that was given up can do harm. Which files count is what the driver
writes down when the step is committed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from dadstorm.core.kernel import Kernel
from dadstorm.core.vault import fold
from dadstorm.durable import files
from dadstorm.durable.files import Damaged
from dadstorm.errors import RunFailed
from dadstorm.wire.bodies import decode_table, encode_table
from dadstorm.wire.codec import Rubbish


class StateFile(msgspec.Struct, frozen=True, array_like=True):
    name: str
    """From the folder of the run's state on."""
    rows: int


def restore(kernel: Kernel, folder: str, kept: Sequence[StateFile]) -> None:
    """Give a kernel the state that the files hold."""
    for file in kept:
        kernel.restore(_read(folder, file))


def save(
    kernel: Kernel, folder: str, kept: Sequence[StateFile], cut: int, slice_name: str, sync: bool
) -> tuple[StateFile, ...] | None:
    """Write what has changed in a kernel up to the cut; the files that hold its state now. None: nothing has."""
    table = kernel.delta()
    if table is None or not table.num_rows:
        return None
    older = list(kept)
    while older and older[-1].rows < 2 * table.num_rows:
        file = older.pop()
        table = fold([_read(folder, file), table], forget=not older)
    name = os.path.join(f"v={cut:019d}", f"{slice_name}-{secrets.token_hex(4)}.state")
    path = os.path.join(folder, name)
    with files.told("checkpoint", path):
        files.make_folder(os.path.dirname(path))
        files.write(path, b"", memoryview(encode_table(table)), sync=sync)
    return (*older, StateFile(name, table.num_rows))


def _read(folder: str, file: StateFile) -> pa.RecordBatch:
    path = os.path.join(folder, file.name)
    try:
        return decode_table(files.read(path)[1])
    except OSError as error:
        raise RunFailed(
            f"checkpoint: cannot read {path}: {error.strerror or error}. Every executor has to see the checkpoint "
            "under this path; put it where they do (--checkpoint DIR)"
        ) from None
    except (Damaged, Rubbish) as error:
        raise RunFailed(f"checkpoint: {error}. Restore it from a copy of your own, or run from the beginning") from None
