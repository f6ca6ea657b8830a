"""Files of the original language: each is accepted with the right output, or refused with line, column and cure.

``tests/legacy/expected.txt`` holds what comes of each file in that folder. The outputs come from the simulator, which
runs the same operators and the same routing as a cluster of processes.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadstorm.errors import UserError
from dadstorm.legacy import language as legacy
from dadstorm.legacy.language import ScriptLine
from tests.unit.legacy_kit import LEGACY, outcome, outputs, saved, told

ROOT = Path(__file__).parents[2]
COURSE = ROOT.parent / "shared" / "legacy"
SECONDS_MAX = 10.0
"""Far more than any takes; the tests share the machine."""


def expectations() -> dict[str, list[str]]:
    expected: dict[str, list[str]] = {}
    name = ""
    for line in (LEGACY / "expected.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            expected[name].append(line[2:])
        elif line and not line.startswith("#"):
            name = line
            expected[name] = []
    return expected


EXPECTED = expectations()
ACCEPTED = sorted(
    name for name, lines in EXPECTED.items() if name.endswith(".config") and not lines[0].startswith("!")
)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, and what a method of the library writes, do not belong into the tests' folder."""
    monkeypatch.chdir(tmp_path)


def test_there_is_an_expectation_for_every_file() -> None:
    files = [path.name for path in LEGACY.iterdir() if path.suffix in (".config", ".script")]
    assert sorted(EXPECTED) == sorted(files)
    assert len(EXPECTED) >= 40


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_file_has_its_outcome(name: str) -> None:
    started = time.monotonic()
    found = [line.rstrip() for line in outcome(LEGACY / name)]
    assert time.monotonic() - started < SECONDS_MAX
    assert found == EXPECTED[name]


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_converted_topology_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    plan, _ = legacy.load(str(LEGACY / name))
    assert outputs(saved(LEGACY / name, tmp_path)) == outputs(plan)


@pytest.mark.parametrize("name", ["reach.config", "ragged-tuples.config", "count-meets-others.config"])
def test_no_schedule_changes_the_output(name: str) -> None:
    plan, _ = legacy.load(str(LEGACY / name))
    assert all(outputs(plan, seed) == outputs(plan) for seed in range(1, 5))


@pytest.mark.parametrize("path", sorted(LEGACY.glob("*.config")), ids=lambda path: path.name)
def test_an_old_file_is_known_by_its_content(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "topology.yaml"
    shutil.copy(path, copy)
    assert legacy.is_legacy(str(copy))


YAMLS = [*ROOT.glob("configs/*.yaml"), *ROOT.glob("tests/broken/*.yaml")]


@pytest.mark.parametrize("path", sorted(YAMLS), ids=lambda path: path.name)
def test_a_topology_is_never_taken_for_an_old_file(path: Path) -> None:
    assert not legacy.is_legacy(str(path))


@pytest.mark.parametrize(
    "text",
    [
        "%YAML 1.2\n---\nsources: {}\n",
        '"sources": {a: {text: x}}\n# Start OP1\n',
        "{sources: {a: {text: x}}}\n",
        "operators:\n  OP1: {input: a, dup: }\nsemantics : exactly-once\n",
        "name: x\nscript:\n- Start OP1\n- Wait 5\n",
        "",
    ],
)
def test_yaml_in_any_dress_is_not_old(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.config"
    path.write_text(text)
    assert not legacy.is_legacy(str(path))


def test_what_is_no_file_is_not_old(tmp_path: Path) -> None:
    assert not legacy.is_legacy(str(tmp_path))
    assert not legacy.is_legacy(str(tmp_path / "missing"))


def test_the_converted_topology_reads_well() -> None:
    converted = legacy.convert(str(LEGACY / "reach.config"))
    assert converted.yaml == (LEGACY / "reach.yaml").read_text()
    assert converted.warnings == []
    assert converted.script[5] == ScriptLine("Interval OP1 10", str(LEGACY / "reach.config"), 21)


def course(tmp_path: Path) -> Path:
    """The course's files with the library that goes with them."""
    if not COURSE.is_dir():
        pytest.skip("the course's files are not here; reach.config is our own of the same kind")
    for path in [*COURSE.iterdir(), LEGACY / "mylib.py"]:
        shutil.copy(path, tmp_path)
    return tmp_path


def test_the_reach_in_the_courses_file_is_seven(tmp_path: Path) -> None:
    path = course(tmp_path) / "dadstorm.config"
    plan, script = legacy.load(str(path))
    assert outputs(plan) == {"OP4": "1\n2\n3\n4\n5\n6\n7\n"}
    assert plan.semantics == "at-most-once"
    assert plan.logging == "light"
    assert [line.text for line in script] == [
        "Start OP1", "Start OP2", "Start OP3", "Start OP4", "Status", "Crash OP1 0", "Freeze OP2 1", "Wait 10000",
        "Unfreeze OP2 1", "Status",
    ]  # fmt: skip
    assert [replica.address for replica in plan["OP1"].replicas] == ["tcp://127.0.0.1:18000", "tcp://127.0.0.1:11000"]


def test_the_steps_of_the_courses_reach(tmp_path: Path) -> None:
    path = course(tmp_path) / "dadstorm.config"
    lines = path.read_text().replace("input_ops OP3 ", "input_ops OP2 ")
    path.write_text(lines)
    plan, _ = legacy.load(str(path))
    found = outputs(plan)
    assert found["OP4"].split()[-1] == "13", "5 tweets have 13 followers"
    assert len(found["OP3"].split()) == 7, "of whom 7 are different"


def test_the_courses_small_file(tmp_path: Path) -> None:
    plan, script = legacy.load(str(course(tmp_path) / "dadstorm-mini.config"))
    assert outputs(plan) == {"OP4STDOUT": "1\n2\n3\n4\n5\n"}
    assert len(script) == 12


def test_a_module_may_lie_in_a_folder_of_its_own(tmp_path: Path) -> None:
    library, folder = tmp_path / "library", tmp_path / "configuration"
    library.mkdir()
    folder.mkdir()
    (library / "shouting.py").write_text("class Loud:\n    def up(self, t):\n        return [[f.upper() for f in t]]\n")
    (folder / "a.dat").write_text("a, b\nc\n")
    path = folder / "x.config"
    path.write_text("OP1 input_ops a.dat rep_fact 1 routing random operator_spec CUSTOM shouting.dll,Loud,up\n")
    with pytest.raises(UserError, match="there is no module shouting"):
        legacy.load(str(path))
    plan, _ = legacy.load(str(path), libs=[str(library)])
    assert outputs(plan) == {"OP1": "A,B\nC\n"}


def test_outputoperator_writes_each_field_on_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "x.config"
    for name in ("mylib.py", "followers.dat"):
        shutil.copy(LEGACY / name, tmp_path)
    (tmp_path / "a.dat").write_text('1, "two"\n3\n')
    path.write_text("OP1 input_ops a.dat rep_fact 1 routing random operator_spec CUSTOM mylib.dll,OutputOperator,"
                    "CustomOperation\n")  # fmt: skip
    plan, _ = legacy.load(str(path))
    assert outputs(plan) == {"OP1": "1,two\n3\n"}
    assert (tmp_path / "output.txt").read_text() == "1\ntwo\n3\n"


def test_a_script_without_a_plan_is_checked_for_its_form(tmp_path: Path) -> None:
    path = tmp_path / "x.script"
    path.write_text("start anything\nCrash tcp://localhost:11000/op\nStop\nWait x\n")
    with pytest.raises(UserError) as caught:
        legacy.read_script(str(path))
    expected = "expected milliseconds: a whole number from 0 to 2147483647"
    assert told(caught.value, path) == [f'! 4:1: Wait: found "x"; {expected}']
    path.write_text("start anything\nCrash tcp://localhost:11000/op\nStop\n")
    found = [line.text for line in legacy.read_script(str(path)).lines]
    assert found == ["Start anything", "Crash tcp://127.0.0.1:11000", "Stop"]


def test_a_missing_file_is_told_with_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "reach.config").write_text("")
    with pytest.raises(UserError, match=r'no such file; did you mean "reach\.config"'):
        legacy.load(str(tmp_path / "reech.config"))


def test_arguments_are_checked_like_those_of_a_topology() -> None:
    with pytest.raises(UserError, match='--sink: found "cvs"'):
        legacy.load(str(LEGACY / "reach.config"), sink="cvs")


def test_the_sample_configuration_runs() -> None:
    plan, script = legacy.load(str(ROOT / "configs" / "legacy" / "reach.config"))
    assert outputs(plan) == {"REACH": "1\n2\n3\n4\n5\n"}
    assert plan.warnings == ()
    assert script[0].text == "Start SEA"


WORDS = [
    "OP1", "OP2", "input_ops", "input ops", "rep_fact", "routing", "address", "operator_spec", "FILTER", "UNIQ",
    "COUNT", "CUSTOM", "DUP", "hashing(1)", "random", "primary", "tcp://localhost:11000/op", "tweeters.dat", "1", "3",
    ",", "=", '"', "%", "\n", "\n ", "\r\n", "Start", "Crash", "Wait", "Semantics", "exactly-once", "mylib.dll", "\\",
    "-1", "“", "LoggingLevel", "full", "\t", "\x00", "é",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
def test_whatever_the_words_are_the_answer_is_a_plan_or_mistakes_with_their_line(text: str) -> None:
    path = Path(os.getcwd()) / "fuzzed.config"
    for name in ("tweeters.dat", "mylib.py", "followers.dat"):
        if not (path.parent / name).exists():
            shutil.copy(LEGACY / name, path.parent)
    path.write_bytes(text.encode())
    try:
        legacy.load(str(path))
    except UserError as error:
        assert told(error, path)
