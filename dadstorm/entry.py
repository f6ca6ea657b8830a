"""How each of our commands begins and ends, whatever the process it was started in is like.

A command finds its three standard streams open, writes any text to them, and may open as many files as the system
allows; ^C ends it plainly until there is something to drain. An error that is meant for the user becomes a message and
an exit code.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from dadstorm.errors import DadstormError, UserError, printable

FILES_MAX = 65536
"""Open files and connections at once, if the system allows so many."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Where modules are loaded. Nothing of them ever becomes garbage: it is not looked for while they come, nor among
    them later on. (That is a tenth of the time to load them, most of the time to end, and in a process that was forked
    it would copy all their memory.)"""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def guarded(action: Callable[[], int]) -> int:
    """What all our commands do about errors: one that is meant for the user is a message and an exit code."""
    try:
        with _plain_interrupts():
            return _told(action)
    except KeyboardInterrupt:  # Also one that comes before that: Python's own is an exception.
        return 130


def _told(action: Callable[[], int]) -> int:
    _open_standard_streams()
    _allow_many_files()
    try:
        _require_folder()
        code = action()
        sys.stdout.flush()
        return code
    except DadstormError as error:
        label = "error" if error.exit_code == 2 else "failed"
        print(f"{label}: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _forget_output()
        return 1
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        with contextlib.suppress(OSError):
            print(f"failed: the output cannot be written: {error.strerror}", file=sys.stderr)
        _forget_output()
        return 1


def _open_standard_streams() -> None:
    """Who is started with a standard stream closed would give its number to the next file, and write into that."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Takes the lowest free number: this one.
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # What the locale cannot show is shown as an escape.


def _allow_many_files() -> None:
    """Connections are files, and everybody of a large topology is connected to many."""
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _require_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the current folder does not exist any more; go to one that does") from None


def _forget_output() -> None:
    """Nobody reads our output: what is left of it must not be tried again when Python ends."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(null, number)


@contextlib.contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Until there is something to drain, ^C ends us as it ends any program. An exception in the middle of loading a
    library (ours take most of a start) would show a traceback, or crash in it."""
    number, usual = signal.SIGINT, signal.default_int_handler
    if signal.getsignal(number) is not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, usual)
