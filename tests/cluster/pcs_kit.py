"""What the tests of several hosts share: PCSs, as daemons, on addresses of their own.

A host is a network namespace, with an address that only the others of the test can reach; where namespaces are not to
be had it is another loopback address. A test that wants to know says which.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kit import ROOT, Running, as_csv

_number = itertools.count(1)


@dataclass(frozen=True)
class Site:
    """Where a process runs: the address of the host, and what to put before its command."""

    address: str
    prefix: tuple[str, ...] = ()


@contextmanager
def namespaces(count: int) -> Iterator[list[Site]]:
    """So many hosts on a network of their own; OSError if this machine does not let us have them. The first is the
    switch as well."""
    tag = f"ds{os.getpid() % 100000}{next(_number)}"
    names = [f"{tag}-{index}" for index in range(count)]
    with ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", names[0], "link", "add", "switch", "type", "bridge")
        _ip("-n", names[0], "addr", "add", "10.87.0.1/24", "dev", "switch")
        _ip("-n", names[0], "link", "set", "switch", "up")
        for index, name in enumerate(names[1:], 1):
            _ip("-n", names[0], "link", "add", f"port{index}", "type", "veth", "peer", "name", "eth", "netns", name)
            _ip("-n", names[0], "link", "set", f"port{index}", "master", "switch", "up")
            _ip("-n", name, "addr", "add", f"10.87.0.{index + 1}/24", "dev", "eth")
            _ip("-n", name, "link", "set", "eth", "up")
        yield [Site(f"10.87.0.{i + 1}", ("ip", "netns", "exec", name)) for i, name in enumerate(names)]


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@contextmanager
def started(
    program: str, *arguments: str | Path, cwd: Path, site: Site | None = None, python: tuple[str, ...] = ()
) -> Iterator[Running]:
    """``python -m PROGRAM ARGUMENTS`` at a site; killed when the block is left and it has not ended."""
    cwd.mkdir(parents=True, exist_ok=True)
    arguments = as_csv(program, arguments, cwd)
    process = subprocess.Popen(
        [*(site.prefix if site else ()), sys.executable, *(python or ("-m", program)), *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    command = Running((program, *map(str, arguments)), process, cwd, time.monotonic())
    try:
        yield command
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        command.out.join()
        command.err.join()


@contextmanager
def pcs(
    cwd: Path, *arguments: str | Path, site: Site | None = None, port: int = 0, python: tuple[str, ...] = ()
) -> Iterator[tuple[Running, str]]:
    """A PCS that listens, and its HOST:PORT; ended by SIGTERM when the block is left."""
    host = site.address if site else "127.0.0.1"
    with started(
        "pcs.cli", "--host", host, "--port", str(port), *arguments, cwd=cwd, site=site, python=python
    ) as command:
        command.err.wait_for("pcs listens on")
        found = re.search(r"listens on tcp://(\S+),", command.err.text)
        assert found
        try:
            yield command, found[1]
        finally:  # Killed, it would leave its replicas to the next PCS.
            with suppress(ProcessLookupError):
                command.process.send_signal(signal.SIGTERM)
            command.process.wait(20)
