"""Finding the user's code, and what decorators say about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dadstorm.custom import Declaration, Field, batch_operator, declaration, keyed_operator, load, misfits, operator
from dadstorm.custom_load import FRAMES_MAX, user_frames
from dadstorm.errors import UserError


@pytest.fixture(autouse=True)
def import_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def write(folder: Path, **modules: str) -> list[str]:
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code)
    return [str(folder)]


def test_names_lead_to_functions_classes_and_methods(tmp_path: Path) -> None:
    package = tmp_path / "pack_a"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text("def g(): return 'deep'\n")
    code = "class C:\n    def m(self, x): return x\n    @staticmethod\n    def s(x): return -x\ndef f(): return 1\n"
    folders = write(tmp_path, names_a=code)
    assert load("names_a.f", folders)() == 1  # type: ignore[operator]
    assert load("pack_a.deep.g", folders)() == "deep"  # type: ignore[operator]
    assert isinstance(load("names_a.C", folders), type)
    assert load("names_a.C.m", folders)(5) == 5  # type: ignore[operator]
    assert load("names_a.C.s", folders)(5) == -5  # type: ignore[operator]
    assert load("os.path.join", folders) is os.path.join


def test_earlier_folders_win_and_helpers_are_found_at_call_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        code = "def f():\n    import aid_b\n    return aid_b.NAME\n"
        write(tmp_path / name, first_b=code)
    write(tmp_path / "two", aid_b="NAME = 'aid'\n")
    found = load("first_b.f", [str(tmp_path / "one"), str(tmp_path / "two")])
    assert found.__code__.co_filename == str(tmp_path / "one" / "first_b.py")  # type: ignore[attr-defined]
    assert found() == "aid"  # type: ignore[operator]


def test_another_or_an_edited_file_of_the_same_name_is_loaded_anew(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, same_c=f"def f(): return {name!r}\n")
    assert load("same_c.f", [str(tmp_path / "one")])() == "one"  # type: ignore[operator]
    assert load("same_c.f", [str(tmp_path / "two")])() == "two"  # type: ignore[operator]
    write(tmp_path / "two", same_c="def f(): return 'edited'\n")
    assert load("same_c.f", [str(tmp_path / "two")])() == "edited"  # type: ignore[operator]
    with pytest.raises(UserError, match="there is no module same_c"):
        empty = tmp_path / "empty"
        empty.mkdir()
        sys.path[:] = [entry for entry in sys.path if not entry.startswith(str(tmp_path))]
        load("same_c.f", [str(empty)])


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("reech_d.f", r"there is no module reech_d \(reech_d\.py\) in .*; did you mean reach_d\?"),
        ("unlike.f", r"there is no module unlike .*; give its folder with --lib"),
        ("reach_d.folowers", r'reach_d has no "folowers" \(.*reach_d\.py\); did you mean followers\?'),
        ("reach_d.zzz", r"has no \"zzz\" .*; it has followers"),
        ("reach_d", r"is not a name of the form module\.function"),
        ("reach_d.two words", r"is not a name of the form"),
        ("reach_d..f", r"is not a name of the form"),
        ("reach_d.VALUE", r"is a value of type int; expected a function or a class"),
        ("os.path", r"is a module; expected a function or a class"),
        ("needs_d.f", r"ModuleNotFoundError: No module named 'absent_d'\n  .*needs_d\.py:1 in <module>: import a"),
        ("syntax_d.f", r"raised SyntaxError: .*\n  .*syntax_d\.py:1: def f\(:"),
        ("raises_d.f", r"raised ZeroDivisionError: .*\n  .*raises_d\.py:2 in <module>: 1 / 0$"),
        ("exits_d.f", r"raised SystemExit: 3"),
        ("json.f", r"has the name of a module of Python or DADSTORM; rename it"),
        ("pytest.f", r"has the name of a module that is already in use"),
        ("field_d.f", r"ValueError: field 'n:itn': .*; did you mean int\?\n  .*field_d\.py:2"),
        ("method_d.C.m", r"C\(\) raised TypeError"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_its_place(tmp_path: Path, reference: str, message: str) -> None:
    folders = write(
        tmp_path,
        reach_d="VALUE = 1\ndef followers(user): ...\n",
        needs_d="import absent_d\n",
        syntax_d="def f(:\n",
        raises_d="x = 1\n1 / 0\n",
        exits_d="raise SystemExit(3)\n",
        json="def f(): ...\n",
        pytest="def f(): ...\n",
        field_d="from dadstorm.custom import operator\n@operator(fields=['n:itn'])\ndef f(x): ...\n",
        method_d="class C:\n    def __init__(self, x): ...\n    def m(self, x): ...\n",
    )
    with pytest.raises(UserError, match=message):
        load(reference, folders)


def test_decorators_declare_and_change_nothing_else() -> None:
    @operator(fields=["word", "length: int", Field("at", "timestamp")], max_outputs=8, with_id=True)
    def f(x: str) -> str:
        return x

    fields = (Field("word"), Field("length", "int"), Field("at", "timestamp"))
    assert declaration(f) == Declaration("row", fields, None, 8, True)
    assert f("a") == "a"
    assert declaration(batch_operator(fields=["a"])(lambda batch: batch)) == Declaration("batch", (Field("a"),))

    @keyed_operator(key="user", fields=["total:int"])
    class Total:
        def process(self, state: object, user: str) -> None: ...

    class Other(Total):
        pass

    assert declaration(Total) == Declaration("keyed", (Field("total", "int"),), ("user",))
    assert declaration(Other) == Declaration("keyed")
    assert declaration(keyed_operator(key=[1, "b"])(Other)).key == (1, "b")


def test_without_a_decorator_a_class_is_keyed_and_the_rest_by_row() -> None:
    assert declaration(len) == Declaration("row")
    assert declaration(Declaration) == Declaration("keyed")


@pytest.mark.parametrize("fields", ["word", ["a:integer"], [":int"], [""]])
def test_a_wrong_field_is_refused_at_the_decorator(fields: list[str]) -> None:
    with pytest.raises(ValueError, match="field"):
        operator(fields=fields)


@pytest.mark.parametrize("limit", [0, -1, True, 1 << 33])
def test_a_wrong_limit_is_refused_at_the_decorator(limit: int) -> None:
    with pytest.raises(ValueError, match="max_outputs"):
        operator(max_outputs=limit)


class Keyed:
    def __init__(self, start: int = 0) -> None: ...

    def process(self, state: object, a: object, b: object) -> None: ...


def two(a: object, b: object) -> None: ...


def two_id(a: object, b: object, *, id: object) -> None: ...


def test_what_fits_has_no_misfits() -> None:
    assert misfits(two, "row", 2, False, {}) == []
    assert misfits(two_id, "row", 2, True, {}) == []
    assert misfits(lambda batch, ids, scale: batch, "batch", 9, True, {"scale": 2}) == []
    assert misfits(Keyed, "keyed", 2, False, {"start": 1}) == []
    assert misfits(max, "row", 3, False, {}) == []


@pytest.mark.parametrize(
    ("obj", "mode", "inputs", "with_id", "args", "message"),
    [
        (two, "row", 3, False, {}, "3 arguments): too many positional arguments"),
        (two, "row", 1, False, {}, "missing a required argument: 'b'"),
        (two, "row", 2, True, {}, "unexpected keyword argument 'id'"),
        (two, "row", 2, False, {"scale": 1}, "unexpected keyword argument 'scale'"),
        (two, "batch", 1, False, {}, "missing a required argument: 'b'"),
        (two, "keyed", 2, False, {}, "two is not a class"),
        (Keyed, "row", 2, False, {}, "Keyed is a class, which only a keyed operator can be"),
        (Keyed, "keyed", 1, False, {}, "Keyed.process(self, state: object, a: object, b: object)"),
        (Keyed, "keyed", 2, False, {"end": 1}, "unexpected keyword argument 'end'"),
        (Declaration, "keyed", 2, False, {}, "class Declaration has no method process(self, state, *fields)"),
    ],
)
def test_what_does_not_fit_is_told(
    obj: object, mode: str, inputs: int, with_id: bool, args: dict[str, object], message: str
) -> None:
    (found,) = misfits(obj, mode, inputs, with_id, args)  # type: ignore[arg-type]
    assert message.replace("object", "") in found.replace("'object'", "").replace("object", "")


def test_of_a_long_traceback_the_ends_are_shown() -> None:
    def again() -> None:
        again()

    with pytest.raises(RecursionError) as caught:
        again()
    frames = user_frames(caught.value)
    assert len(frames) == FRAMES_MAX + 1
    assert frames[FRAMES_MAX // 2].startswith("… ")
