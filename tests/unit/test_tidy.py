"""House style, checked: what a reader of the code may rely on."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("dadstorm", "puppetmaster", "pcs")
LINES_MAX = 500
WIDTH_MAX = 120

MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
THIS = Path(__file__)


def tracked() -> list[Path]:
    """All text files of the project, as git knows them; the folders by hand where there is no git."""
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        names = [ROOT / name for name in done.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        folders = (*PACKAGES, "tests", "docs", "scripts", "configs")
        names = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return [path for path in names if path.is_file() and path != THIS and b"\0" not in path.read_bytes()[:8192]]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", MODULES + TESTS, ids=name_of)
def test_a_module_opens_with_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree(path)), f"{name_of(path)}: the first thing in a module is a docstring"


@pytest.mark.parametrize("path", MODULES + TESTS, ids=name_of)
def test_a_module_is_one_room(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES_MAX, f"{name_of(path)} has {len(lines)} lines: split it by purpose"
    wide = [f"{name_of(path)}:{n} ({len(line)})" for n, line in enumerate(lines, 1) if len(line) > WIDTH_MAX]
    assert not wide, f"lines over {WIDTH_MAX} characters: {', '.join(wide)}"


FORBIDDEN_CALLS = {
    "eval": "runs whatever the text says",
    "exec": "runs whatever the text says",
    "hash": "differs between processes: use dadstorm.core.hashing",
    "yaml.load": "builds any object: use a safe loader",
    "yaml.unsafe_load": "builds any object: use a safe loader",
    "os.system": "goes through a shell",
    "os.popen": "goes through a shell",
}
FORBIDDEN_IMPORTS = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_runs_or_unpacks_what_others_sent(path: Path) -> None:
    wrong = []
    for name, call in calls(path):
        if name in FORBIDDEN_CALLS:
            wrong.append(f"{name_of(path)}:{call.lineno} {name}: {FORBIDDEN_CALLS[name]}")
        if any(keyword.arg == "shell" and ast.unparse(keyword.value) != "False" for keyword in call.keywords):
            wrong.append(f"{name_of(path)}:{call.lineno} {name} with a shell")
    for node in ast.walk(tree(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        wrong += [f"{name_of(path)}:{node.lineno} imports {n}" for n in names if n.split(".")[0] in FORBIDDEN_IMPORTS]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_public_functions_say_why(path: Path) -> None:
    """A short function whose name and types say it all may go without a docstring."""
    wrong = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and (node.end_lineno or node.lineno) - node.lineno > 8
    ]
    assert not wrong, "without a docstring:\n" + "\n".join(wrong)


def test_no_unfinished_business_no_paths_of_a_machine_no_registry() -> None:
    unwanted = re.compile(
        r"\b(TODO|FIXME|XXX|HACK)\b|/(home|Users|root|work)/\w|/tmp/\w|pypi\.org|pythonhosted|index-url|registry\."
    )
    wrong = [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if unwanted.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    wrong = [
        f"{name_of(page)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not wrong, "\n".join(wrong)


def test_packaging_lives_in_setup_cfg_alone() -> None:
    assert (ROOT / "setup.cfg").is_file()
    assert not (ROOT / "pyproject.toml").exists()
    assert not (ROOT / "setup.py").exists()


@pytest.mark.parametrize("name", ["scripts/run", "scripts/test", "scripts/setup", ".ci/run"])
def test_scripts_can_be_started_and_parse(name: str) -> None:
    path = ROOT / name
    assert path.stat().st_mode & 0o111, f"{name} is not executable"
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_no_two_test_modules_have_one_name() -> None:
    """pytest imports them by their names alone."""
    names = [path.name for path in TESTS if path.name not in ("conftest.py", "__init__.py")]
    assert sorted(set(names)) == sorted(names)
