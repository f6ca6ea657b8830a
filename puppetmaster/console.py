"""The console: commands typed while a run goes on, with history and completion; or read from a pipe, a line each.

At a terminal everything happens in one thread: the prompt is a coroutine, and another one drives the session now and
then. What the session says is printed above the prompt. ^C clears the line; on an empty one it first ends a ``Wait``,
then offers, and the second time does, what ``Stop`` does. ^D is ``Exit``.

From a pipe, the end of the input is like the end of a script: the run goes on to its end, if it can come to one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
from collections.abc import Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from dadstorm import audit
from dadstorm.core.line import END
from dadstorm.errors import DadstormError, RunFailed, UserError
from dadstorm.plan import Plan
from pcs.private import PrivatePcs
from puppetmaster.attach import AttachOptions, attached
from puppetmaster.commands import Exit, Stop, WrongCommand, completions, parse
from puppetmaster.deployment import finished_rows
from puppetmaster.progress import Progress
from puppetmaster.run import LISTEN_MS, Interrupts, Options, opened_session, prepared
from puppetmaster.script import Script
from puppetmaster.session import Session

PROMPT = "puppetmaster> "
DRIVE_S = 0.02
"""How often the session is driven while the prompt waits for keys."""
REFRESH_S = 0.5
"""How often the line below the prompt is."""
LINE_BYTES_MAX = 1 << 16
"""A longer line on a pipe is no command."""


def console(options: Options, pcs: PrivatePcs) -> int:
    """Deploy a topology and take commands until somebody wants to leave; the exit code."""
    with Interrupts().installed() as interrupts, prepared(options, pcs, interrupts, unattended=False) as ready:
        _refuse_stdin(ready.plan)
        progress = Progress(ready.plan)
        with opened_session(ready, _say, _note) as session:
            _converse(session, ready.script, interrupts)
        progress.finish(finished_rows(session.deployment), session.deployment.look(), ready.folder)
        if options.audit:
            _note(audit.conclude(ready.folder, ready.plan))
        return 0


def attached_console(options: AttachOptions) -> int:
    """Take over a run that is there and take commands until somebody wants to leave; the exit code."""
    with Interrupts().installed() as interrupts, attached(options, interrupts, _say, _note) as found:
        session = found.session
        progress = Progress(session.deployment.plan)
        _converse(session, found.script, interrupts)
        progress.finish(finished_rows(session.deployment), session.deployment.look(), found.folder)
        return 0


def _converse(session: Session, script: Script | None, interrupts: Interrupts) -> None:
    """The script first, then what is typed or comes by the pipe; in the end the run is over."""
    if script is not None:
        session.play(script.commands, echo=True)
    if sys.stdin.isatty() and sys.stdout.isatty():
        Terminal(session, interrupts).run()
    else:
        _pipe(session, interrupts)
    session.deployment.end()


def _refuse_stdin(plan: Plan) -> None:
    for operator in plan.operators:
        if operator.kind == "source" and operator.params["type"] == "stdin":
            raise UserError(
                f"source {operator.name} reads standard input, and so do the commands; use dadstorm run FILE --script "
                "FILE, or another kind of source"
            )


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _note(text: str) -> None:
    _say(f"{text}\n")


def _take(session: Session, line: str) -> None:
    """Queue the command on a line; a wrong one changes nothing."""
    try:
        command = parse(line, session.deployment.plan)
    except WrongCommand as wrong:
        _note(f"{wrong}")
    else:
        if command is not None:
            session.play([command])


# -- a pipe ----------------------------------------------------------------------------------------------------------


def _pipe(session: Session, interrupts: Interrupts) -> None:
    lines = _Lines(sys.stdin.fileno())
    endpoint = session.deployment.endpoint
    endpoint.also_wake_for([lines.fd])
    draining = False
    while not session.exiting:
        if session.idle and (lines.over or draining) and (session.deployment.finished or session.held_up):
            if not session.deployment.finished:
                _note(f"the commands are over and it cannot finish: {', '.join(session.held_up)}; stopped")
            return
        if interrupts.count and not draining:
            draining = True
            session.end_early()
        if interrupts.count > 1:
            raise RunFailed("stopped at once; the output is what was committed by then")
        if session.idle:
            for line in lines.take():
                _take(session, line)
        # A command that waits leaves the rest of the pipe unread, which then need not wake us.
        endpoint.also_wake_for([] if lines.over or not session.idle else [lines.fd])
        session.turn(LISTEN_MS)


class _Lines:
    """The lines of a pipe or file, as they come."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.over = False
        self._rest = b""

    def take(self) -> Iterator[str]:
        """What is there now; never waits."""
        if self.over or not select.select([self.fd], [], [], 0)[0]:
            return
        chunk = os.read(self.fd, LINE_BYTES_MAX)
        self.over = not chunk
        *lines, self._rest = (self._rest + chunk + (b"" if chunk else b"\n")).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            self._rest = self._rest[:LINE_BYTES_MAX]
        for line in lines:
            yield line.decode("utf-8", "replace")


# -- a terminal ------------------------------------------------------------------------------------------------------


class _Leave(Exception):
    """The prompt is to end: there is nothing more to type."""


class _Completer(Completer):
    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        word = "" if before[-1:].isspace() else before.split(" ")[-1]
        for found in completions(before, self._plan):
            yield Completion(found, start_position=-len(word))


class Terminal:
    def __init__(self, session: Session, interrupts: Interrupts) -> None:
        self._session = session
        self._interrupts = interrupts
        self._failure: DadstormError | None = None
        self._told_finished = False
        self._offered = False
        self._prompt: PromptSession[str] = PromptSession(
            PROMPT,
            history=_history(),
            completer=_Completer(session.deployment.plan),
            complete_while_typing=False,
            key_bindings=self._keys(),
            bottom_toolbar=self._toolbar,
            refresh_interval=REFRESH_S,
        )

    def run(self) -> None:
        """Take commands until somebody leaves, or the run fails."""
        _note("Type Help for the commands; operators do nothing before their Start. ^D or Exit ends it all.")
        with patch_stdout(raw=True):
            asyncio.run(self._talk())
        if self._failure is not None:
            raise self._failure

    async def _talk(self) -> None:
        driver = asyncio.ensure_future(self._drive())
        try:
            while not self._session.exiting and self._failure is None:
                try:
                    line = await self._prompt.prompt_async()
                except EOFError:
                    self._session.do(Exit())
                except KeyboardInterrupt:
                    self._interrupted()
                except _Leave:
                    pass
                else:
                    self._offered = False
                    _take(self._session, line)
        finally:
            driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await driver

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt)

        return keys

    def _interrupted(self) -> None:
        """^C at an empty prompt."""
        if self._session.waiting:
            self._session.skip_wait()
            _note("the Wait was ended; what was to come after it is forgotten")
        elif self._offered:
            self._offered = False
            _note("draining: what is under way comes out")
            self._session.do(Stop())
        else:
            self._offered = True
            _note("^C again: drain, as Stop does; ^D: end at once")

    async def _drive(self) -> None:
        """Let the session go on while the prompt waits for keys; end the prompt when there is nothing left to say."""
        while not self._session.exiting and self._failure is None:
            try:
                self._session.turn(0)
            except DadstormError as error:
                self._failure = error
            if self._interrupts.count:
                # Not ^C, which is a key here: somebody ends us, or the terminal is gone.
                self._session.do(Exit())
            finished = self._session.deployment.finished
            if finished and not self._told_finished:
                _note("finished: all that there was to read is read and written")
            self._told_finished = finished
            await asyncio.sleep(DRIVE_S)
        if self._prompt.app.is_running:
            self._prompt.app.exit(exception=_Leave)

    def _toolbar(self) -> str:
        look = self._session.deployment.look()
        frontier = "end" if look.frontier == END else f"{look.frontier:,}"
        return (
            f"{self._session.deployment.plan.name}: {look.rows_read:,} tuples read, {look.rows_written:,} written, "
            f"frontier {frontier}, {look.alive}/{look.replicas} replicas alive"
        )


def _history() -> History:
    """What was typed in earlier sessions; only of this one, if there is no place to keep it."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    folder = os.path.join(state, "dadstorm")
    path = os.path.join(folder, "history")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(path, "ab"):
            pass
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
