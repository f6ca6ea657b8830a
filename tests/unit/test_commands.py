"""Commands: one line, one command; a wrong one says what is wrong and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadstorm import topology
from dadstorm.errors import UserError
from dadstorm.loading import load
from dadstorm.plan import Plan
from puppetmaster import commands, script
from puppetmaster.commands import (
    Crash,
    Exit,
    Freeze,
    Heal,
    Help,
    Interval,
    Kill,
    Partition,
    Slow,
    Start,
    Status,
    Stop,
    Unfreeze,
    Wait,
    WrongCommand,
    completions,
    parse,
)

ROOT = Path(__file__).parents[2]
PLAN = topology.load(str(ROOT / "configs" / "reach.yaml"))
OLD = load(str(ROOT / "configs" / "legacy" / "reach.config"))


@pytest.mark.parametrize(
    "line, command",
    [
        ("Start", Start()),
        ("start TECNICO", Start("tecnico")),
        ("  STATUS  ", Status()),
        ("status people --json", Status("people", json=True)),
        ("Status --JSON", Status(json=True)),
        ("Interval people 250", Interval("people", 250)),
        ("interval people, 250 ms", Interval("people", 250)),
        ("Crash reach.sink 0", Crash("reach.sink", 0)),
        ("Freeze people 1 % to see what happens", Freeze("people", 1)),
        ("unfreeze people 01", Unfreeze("people", 1)),
        ("slow people 1 50 ms", Slow("people", 1, 50)),
        ("PARTITION People Localhost", Partition("people", "localhost")),
        ("Partition people/1, people/0", Partition("people/1", "people/0")),
        ("heal", Heal()),
        ("Wait 0", Wait(0)),
        ("stop", Stop()),
        ("HELP crash", Help("Crash")),
        ("help", Help()),
        ("exit", Exit()),
        ("", None),
        ("  % only a comment", None),
    ],
)
def test_a_line_is_a_command(line: str, command: commands.Command | None) -> None:
    assert parse(line, PLAN) == command


def test_a_replica_may_be_named_by_its_address() -> None:
    assert parse("Crash tcp://localhost:11021/op", OLD) == Crash("FOLLOWERS", 1)


@pytest.mark.parametrize(
    "line, wrong, right",
    [
        ("Frezze people 1", 'unknown command "Frezze"', 'did you mean "Freeze"?'),
        ("Kill people 1", 'found "people 1"', "expected Kill HOST"),
        ("Kill people", 'no host "people"', "the hosts are localhost"),
        ("Kill localhost", "part of the PuppetMaster", "Crash kills its replicas"),
        ("Slow people 1", 'found "people 1"', "expected Slow OPERATOR REPLICA MS"),
        ("Slow people 7 100", "Slow: people has no replica 7", "the replicas 0 to 1"),
        ("Slow people 1 soon", 'Slow: found "soon"', "milliseconds"),
        ("Partition people", 'found "people"', "expected Partition A B"),
        ("Partition people peeple", 'no operator or host "peeple"', 'did you mean "people"?'),
        ("Partition people/7 reach", "people has no replica 7", "the replicas 0 to 1"),
        ("Partition people/0 peeple/0", 'no operator "peeple"', "people"),
        ("Partition people/1 people/1", "the same replica", "expected two sides"),
        ("Heal all", 'found "all"', "expected Heal"),
        ("Please start all the operators now", 'unknown command "Please"', "expected Start"),
        ("Start peple", 'no operator "peple"', "people"),
        ("Crash people", 'found "people"', "expected Crash OPERATOR REPLICA"),
        ("Crash people 2", "people has no replica 2", "the replicas 0 to 1"),
        ("Crash people one", 'found "one"', "a replica's number, from 0"),
        ("Crash tcp://localhost:1/op", "no replica has the address", ""),
        ("Interval people", 'found "people"', "expected Interval OPERATOR MILLISECONDS"),
        ("Interval people -5", 'found "-5"', "a whole number from 0"),
        ("Wait", "found nothing", "expected Wait MILLISECONDS"),
        ("Wait 99999999999999999999", "found", "to 2147483647"),
        ("Status people now", 'found "people now"', "expected Status [OPERATOR] [--json]"),
        ("Stop people", 'found "people"', "expected Stop"),
        ("Help crush", 'no command "crush"', 'did you mean "Crash"?'),
    ],
)
def test_a_wrong_line_says_what_is_wrong_and_what_is_right(line: str, wrong: str, right: str) -> None:
    with pytest.raises(WrongCommand) as found:
        parse(line, PLAN)
    assert wrong in str(found.value) and right in str(found.value)
    assert "%" not in str(found.value), "a console has no comments to speak of"


@given(st.text())
def test_no_line_does_anything_but_be_a_command_or_wrong(line: str) -> None:
    try:
        command = parse(line, PLAN)
    except WrongCommand as wrong:
        assert str(wrong)
    else:
        assert command is None or parse(commands.text(command), PLAN) == command


def test_a_command_in_script_syntax_is_itself() -> None:
    lines = ["Start", "Start people", "Interval people 0", "Status people --json", "Crash people 0", "Wait 7", "Stop"]
    lines += ["Slow people 1 9", "Partition people/0 reach", "Heal"]
    for line in lines:
        command = parse(line, PLAN)
        assert command is not None and commands.text(command) == line


def test_help_names_every_command() -> None:
    assert all(name in commands.help_text() for name in commands.TEXTS)
    assert commands.help_text("Wait").startswith("Wait MS")


@pytest.mark.parametrize(
    "before, expected",
    [
        ("", list(commands.TEXTS)),
        ("st", ["Start", "Status", "Stop"]),
        ("slow people ", ["0", "1"]),
        ("Partition peo", ["people", "people/0", "people/1"]),
        ("Partition people lo", ["localhost"]),
        ("Kill ", []),
        ("Freeze pe", ["people"]),
        ("freeze people ", ["0", "1"]),
        ("Crash reach.sink ", ["0"]),
        ("Help un", ["Unfreeze"]),
        ("Status people ", ["--json"]),
        ("Wait ", []),
        ("nonsense ", []),
        ("Freeze people 1 ", []),
    ],
)
def test_completion(before: str, expected: list[str]) -> None:
    assert list(completions(before, PLAN)) == expected


# -- scripts ---------------------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> str:
    path = folder / "script.txt"
    path.write_text(text)
    return str(path)


def test_all_wrong_lines_of_a_script_are_told_with_their_place(tmp_path: Path) -> None:
    path = written(tmp_path, "Start\n\nFreez people 1\n% fine\nWait ten\n")
    with pytest.raises(UserError) as found:
        script.load(PLAN, path)
    assert [(m.file, m.line) for m in found.value.mistakes] == [(path, 3), (path, 5)]


def hosts(folder: Path) -> Plan:
    (folder / "h.yaml").write_text(
        "hosts: {left: 127.0.0.2, Right: '127.0.0.3:7000', spare: 127.0.0.4, both: 127.0.0.5}\n"
        "sources: {n: {generate: {n: counter}, count: 3}}\n"
        "operators: {a: {input: n, dup: , replicas: 2, on: [left, Right]}, both: {input: a, dup: , on: both}}\n"
    )
    return topology.load(str(folder / "h.yaml"))


def test_a_host_is_named_as_in_the_topology_or_by_its_address(tmp_path: Path) -> None:
    plan = hosts(tmp_path)
    for line in ("Kill LEFT", "kill 127.0.0.2", "Kill 127.0.0.2:10000"):
        assert parse(line, plan) == Kill("left")
    assert parse("Kill 127.0.0.3:7000", plan) == Kill("Right")
    assert parse("Partition left right", plan) == Partition("left", "Right")
    assert parse("Partition 127.0.0.5 both/0", plan) == Partition("127.0.0.5:10000", "both/0")
    assert list(completions("kill ", plan)) == ["left", "Right", "both"]
    for line, told in (
        ("Kill spare", 'no replica runs on the host "spare"'),
        ("Partition both left", "is an operator and a host; write 127.0.0.5:10000"),
    ):
        with pytest.raises(WrongCommand, match=told):
            parse(line, plan)


def test_the_own_commands_of_the_puppetmaster_are_checked_too(tmp_path: Path) -> None:
    path = written(tmp_path, "Start\nStop now\nKill people 0\n")
    with pytest.raises(UserError) as found:
        script.load(PLAN, path)
    assert [m.line for m in found.value.mistakes] == [2, 3]


def test_a_topology_may_bring_its_script_along(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "sources: {n: {generate: {n: counter}, count: 3}}\noperators: {a: {input: n, dup: }}\n"
        "script:\n  - start\n  - Wait 5\n  - STATUS a\n"
    )
    found = script.load(topology.load(str(tmp_path / "t.yaml")), None)
    assert found is not None and found.commands == [Start(), Wait(5), Status("a")]
    assert [step.line for step in found.steps] == [4, 5, 6]


def test_the_commands_of_an_old_file_are_its_script() -> None:
    found = script.load(OLD, None)
    assert found is not None and found.commands[:2] == [Start("SEA"), Start("FOLLOWERS")]
    script.check_ends(found, OLD)


def ends(plan: Plan, folder: Path, text: str) -> list[str]:
    """What would keep a run with this script from ending."""
    found = script.load(plan, written(folder, text))
    assert found is not None
    try:
        script.check_ends(found, plan)
    except UserError as error:
        return [mistake.message.split(",")[0] for mistake in error.mistakes]
    return []


def test_a_script_that_could_never_end_is_a_mistake(tmp_path: Path) -> None:
    assert ends(PLAN, tmp_path, "Start\n") == []
    assert ends(PLAN, tmp_path, "Start tecnico\nStart followers\nStart people\nStart reach\n") == []
    assert ends(PLAN, tmp_path, "Start tecnico\nStart followers\nStart reach\n") == ["people is never started"]
    assert ends(PLAN, tmp_path, "Start\nFreeze people 1\nStop\n") == ["people 1 stays frozen"]
    assert ends(PLAN, tmp_path, "Start\nFreeze people 1\nCrash people 1\n") == []
    assert ends(PLAN, tmp_path, "Start\nFreeze people 1\nUnfreeze people 1\n") == []
    assert ends(PLAN, tmp_path, "Start tecnico\nFreeze people 1\nExit\n") == []
    assert ends(PLAN, tmp_path, "Start\nPartition people reach\n") == ["this partition stays"]
    assert ends(PLAN, tmp_path, "Start\nPartition people reach\nPartition people tecnico\nHeal\n") == []


def test_sources_and_sinks_begin_with_their_neighbour_unless_they_have_a_start_of_their_own() -> None:
    assert script.starts(PLAN, "tecnico", set()) == {"tecnico", "tweets"}
    assert script.starts(PLAN, "tecnico", {"tweets"}) == {"tecnico"}
    assert script.starts(PLAN, "reach", set()) == {"reach", "reach.sink"}
    assert script.starts(PLAN, None, {"tweets"}) == {operator.name for operator in PLAN.operators}
