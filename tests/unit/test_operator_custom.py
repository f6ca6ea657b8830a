"""CUSTOM in its three forms: what a function may return, what its errors do, what keyed state keeps."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from operator_kit import Case

from dadstorm.core.kernel import RecordError
from dadstorm.errors import RunFailed


class Lab:
    """Writes user code into a module and runs it as an operator."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def case(self, code: str, inputs: list[str], outputs: list[str], **options: Any) -> Case:
        self._count += 1
        module = f"user{self._count}_{self._folder.name}".replace("-", "_")
        (self._folder / f"{module}.py").write_text(code)
        bits, on_error = options.pop("bits", 0), options.pop("on_error", "fail")
        params = {"function": f"{module}.f", "mode": "row", "key": [], "with_id": False, "args": {}, **options}
        return Case("custom", params, inputs, outputs, bits, on_error, str(self._folder))

    def row(self, body: str, outputs: list[str], tuples: list[Any], **options: Any) -> Any:
        """Run ``def f(x): body`` over one int field."""
        code = f"import datetime\nimport numpy as np\ndef f(x):\n    {body}\n"
        return self.case(code, ["x:int"], outputs, **options).run([(value,) for value in tuples])


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return None", []),
        ("return (x, 'a')", [(7, "a")]),
        ("return [(x, 'a'), (x + 1, 'b')]", [(7, "a"), (8, "b")]),
        ("return [[x, 'a']]", [(7, "a")]),
        ("return []", []),
        ("yield x, 'a'\n    yield x + 1, 'b'", [(7, "a"), (8, "b")]),
        ("return zip([x, 8], 'ab')", [(7, "a"), (8, "b")]),
        ("return (np.int32(x), np.str_('a'))", [(7, "a")]),
        ("return (None, None)", [(None, None)]),
    ],
)
def test_what_a_function_may_return(lab: Lab, body: str, expected: list[Any]) -> None:
    assert lab.row(body, ["n:int", "s"], [7], bits=1).values == expected


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", "'a'", "a"),
        ("int", "True and 3", 3),
        ("float", "2", 2.0),
        ("float", "2**53 + 1", 2.0**53),
        ("float", "np.float32(0.5)", 0.5),
        ("bool", "np.bool_(True)", True),
        ("timestamp", "datetime.datetime(2024, 5, 1)", datetime.datetime(2024, 5, 1)),
        ("timestamp", "np.datetime64('2024-05-01')", datetime.datetime(2024, 5, 1)),
        (
            "timestamp",
            "datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))",
            datetime.datetime(2024, 4, 30, 22),
        ),
    ],
)
def test_a_bare_value_is_a_tuple_of_one(lab: Lab, kind: str, value: str, expected: object) -> None:
    for body in (f"return {value}", f"return [{value}]", f"return ({value},)", f"yield {value}"):
        assert lab.row(body, [f"v:{kind}"], [1]).values == [(expected,)]


@pytest.mark.parametrize(
    ("body", "fields", "message"),
    [
        ("return 'a'", ["a", "b"], r"returned 'a' \(str\); expected None, a tuple of 2, or a list of such"),
        ("return {'a': 1}", ["a"], r"returned {'a': 1} \(dict\); expected None, a value or a tuple of 1"),
        ("return {'a'}", ["a"], r"returned a set"),
        ("return object()", ["a"], r"returned a object"),
        ("return ('a',)", ["a", "b"], r"an output has 1 field, \('a',\) \(tuple\); expected 2 fields"),
        ("return (('a', 'b'), ('c', 'd'), ('e', 'f'))", ["a", "b"], r"several outputs are returned as a list"),
        ("return [('a', 'b'), 'c']", ["a", "b"], r"one of its outputs is 'c' \(str\); expected a tuple of 2"),
        ("return 1", ["a"], r'output field "a" is 1 \(int\); expected a str or None'),
        ("return b'a'", ["a"], r"returned b'a' \(bytes\)"),
        ("return (b'a',)", ["a"], r'output field "a" is b\'a\' \(bytes\); expected a str'),
        ("return '\\ud800'", ["a"], r"not valid Unicode text: surrogates not allowed"),
        ("return 1.5", ["a:int"], r'output field "a" is 1.5 \(float\); expected an int'),
        ("return True", ["a:int"], r"expected an int"),
        ("return 2**63", ["a:int"], r"does not fit 64 bits"),
        ("return True", ["a:float"], r"expected a float"),
        ("return 10**400", ["a:float"], r"too large for a float"),
        ("return 1", ["a:bool"], r"expected a bool"),
        ("return 1", ["a:timestamp"], r"expected a datetime"),
        ("return [(1,), (2,), (3,)]", ["a:int"], r"more than 2 outputs for one tuple"),
        ("while True: yield x", ["a:int"], r"more than 2 outputs for one tuple"),
    ],
)
def test_what_it_may_not_return_is_an_error_of_that_tuple(lab: Lab, body: str, fields: list[str], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        lab.row(body, fields, [1], bits=1)
    guarded = f"if x == 1:\n        {body}\n    else:\n        yield (None,) * {len(fields)}"
    if "yield" not in body:
        guarded = f"if x == 1:\n        {body}\n    return (None,) * {len(fields)}"
    result = lab.row(guarded, fields, [0, 1, 2], bits=1, on_error="dead-letter")
    assert [row[:2] for row in result.out] == [(0, 0), (1, 0)], "only that tuple is missing"
    assert [row[:2] for row in result.dead] == [(0, 1)]


def test_an_error_tells_operator_tuple_fields_and_the_users_lines(lab: Lab) -> None:
    code = "def helper(x):\n    return 1 // x\n\ndef f(x, s):\n    return helper(x)\n"
    case = lab.case(code, ["x:int", "s"], ["y:int"])
    with pytest.raises(RecordError) as caught:
        case.run([(1, "a"), (2, "b"), (0, "ü")])
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "operator op could not handle the tuple with ID (1, 0): "
        "ZeroDivisionError: integer division or modulo by zero"
    )
    assert lines[1] == '  fields: {"x":0,"s":"ü"}'
    assert lines[2].endswith(".py:5 in f: return helper(x)")
    assert lines[3].endswith(".py:2 in helper: return 1 // x")
    assert len(lines) == 5 and "on_error: skip" in lines[4]


def test_skip_drops_and_dead_letter_puts_aside(lab: Lab) -> None:
    code = "def f(x):\n    if x == 2:\n        raise ValueError(f'bad {object()}')\n    return x * 10\n"
    case = lab.case(code, ["x:int"], ["y:int"], on_error="skip")
    assert case.run([(1,), (2,), (3,)]).out == [(0, 0, 0, 10), (1, 0, 0, 30)]
    case.on_error = "dead-letter"
    result = case.run([(1,), (2,), (3,)])
    assert result.values == [(10,), (30,)]
    ((seq, sub, place, error, record),) = result.dead
    assert (seq, sub, place, record) == (0, 1, "operator op, ID (0, 1)", '{"x":2}')
    assert error.startswith("ValueError: bad <object object at 0x…> (user") and error.endswith(".py:3)")


@pytest.mark.parametrize("raised", ["SystemExit(3)", "KeyboardInterrupt()", "StopIteration()", "GeneratorExit()"])
@pytest.mark.parametrize("mode", ["row", "batch", "keyed"])
def test_nothing_that_user_code_raises_gets_through(lab: Lab, raised: str, mode: str) -> None:
    code = {
        "row": f"def f(x):\n    if x == 2: raise {raised}\n    return x",
        "batch": f"def f(b):\n    if 2 in b.column(0).to_pylist(): raise {raised}\n    return b",
        "keyed": f"class f:\n    def process(self, state, x):\n        if x == 2: raise {raised}\n        return x",
    }
    case = lab.case(code[mode], ["x:int"], ["y:int"], mode=mode, on_error="skip")
    assert case.run([(1,), (2,), (3,)]).values == [(1,), (3,)]


def test_a_generator_that_raises_half_way_emits_nothing_of_that_tuple(lab: Lab) -> None:
    body = "yield x\n    if x == 2: raise ValueError\n    yield -x"
    result = lab.row(body, ["y:int"], [1, 2, 3], bits=1, on_error="skip")
    assert result.values == [(1,), (-1,), (3,), (-3,)]


def test_a_generator_runs_to_its_end_before_the_next_tuple(lab: Lab) -> None:
    code = "log = []\ndef f(x):\n    log.append(x)\n    yield len(log)\n    log.append(x)\n    yield len(log)\n"
    assert lab.case(code, ["x:int"], ["y:int"], bits=1).run([(1,), (2,)]).values == [(1,), (2,), (3,), (4,)]


def test_the_id_and_arguments_come_by_keyword(lab: Lab) -> None:
    code = "def f(x, *, id, plus):\n    return (id.seq, id[1], x + plus)\n"
    case = lab.case(code, ["x:int"], ["seq:int", "sub:int", "y:int"], with_id=True, args={"plus": 100})
    assert case.run([(1,), (2,), (3,)]).values == [(0, 0, 101), (0, 1, 102), (1, 0, 103)]
    code = "class f:\n    def __init__(self, plus): self.plus = plus\n"
    code += "    def process(self, state, x, id): return (id.seq, id.sub, x + self.plus)\n"
    case = lab.case(code, ["x:int"], list(case.outputs), mode="keyed", with_id=True, args={"plus": 100})
    assert case.run([(1,), (2,), (3,)]).values == [(0, 0, 101), (0, 1, 102), (1, 0, 103)]


BATCH = "import numpy as np, pyarrow as pa, pyarrow.compute as pc\ndef f(batch):\n    "


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return batch.to_pylist()", r"returned a list; expected a pyarrow.RecordBatch"),
        ("return batch.slice(1)", r"returned 0 rows for 1; return \(batch, parents\)"),
        ("return batch, [0, 0]", r"returned 1 rows with 2 parents"),
        ("return batch, [1]", r"its parents are not ascending row numbers from 0 to 0"),
        ("return batch, ['a']", r"its parents are not a list of integers"),
        ("return pa.concat_batches([batch] * 3), [0, 0, 0]", r"more than 2 outputs for one tuple"),
        ("return batch.append_column('y', batch.column(0))", r"returned 2 columns; expected 1"),
        ("return pa.record_batch([pa.array(['a'] * len(batch))], ['y'])", r'"y" is of type string; expected int64'),
        ("return pa.record_batch([pa.array([1.0] * len(batch))], ['y'])", r'"y" is of type double; expected int64'),
        ("return pa.record_batch([pa.array([2**63] * len(batch), pa.uint64())], ['y'])", r"do not fit"),
    ],
)
def test_what_a_batch_function_may_not_return(lab: Lab, body: str, message: str) -> None:
    case = lab.case(BATCH + body, ["x:int"], ["y:int"], mode="batch", bits=1)
    with pytest.raises(RecordError, match=r"ID \(0, 0\): .*" + message):
        case.run([(1,), (2,), (3,)])


def test_a_batch_function_filters_and_expands(lab: Lab) -> None:
    body = "keep = np.repeat(np.arange(len(batch)), batch.column(0).to_numpy() % 3)\n    return batch.take(keep), keep"
    case = lab.case(BATCH + body, ["x:int"], ["y:int"], mode="batch", bits=1)
    assert case.run([(1,), (3,), (5,)]).out == [(0, 0, 0, 1), (1, 0, 0, 5), (1, 0, 1, 5)]
    other = BATCH + "return pa.record_batch([batch.column(0).cast(pa.int16()).dictionary_encode()], ['z'])"
    case = lab.case(other, ["x:int"], ["y:int"], mode="batch")
    assert case.run([(1,), (None,)]).values == [(1,), (None,)], "storage is converted where nothing is lost"


def test_a_failing_batch_names_its_first_failing_row(lab: Lab) -> None:
    body = "if pc.any(pc.greater(batch.column(0), 2)).as_py(): raise ValueError('above 2')\n    return batch"
    case = lab.case(BATCH + body, ["x:int"], ["y:int"], mode="batch")
    with pytest.raises(RecordError, match=r"ID \(1, 0\): ValueError: above 2\n  fields: {\"x\":3}"):
        case.run([(1,), (2,), (3,), (1,), (9,)])
    case.on_error = "dead-letter"
    result = case.run([(1,), (2,), (3,), (1,), (9,)])
    assert result.values == [(1,), (2,), (1,)]
    assert [letter[:2] for letter in result.dead] == [(1, 0), (2, 0)]


KEYED = "class f:\n    def process(self, state, k, x):\n        "


def keyed(lab: Lab, body: str, tuples: list[Any], **options: Any) -> list[Any]:
    case = lab.case(KEYED + body, ["k", "x:int"], ["y"], mode="keyed", key=[0], **options)
    values = [row[0] for row in case.run(tuples).values]
    restored = case.run(tuples, cuts=range(len(tuples)), restores=range(len(tuples)))
    assert [row[0] for row in restored.values] == values, "with a restore before every row"
    return values


def test_state_is_per_key_and_survives(lab: Lab) -> None:
    body = "n = state.get(0) + x; state.set(n); return f'{state.key}{n}'"
    tuples = [("a", 1), ("b", 5), ("a", 2), (None, 1), (None, 1)]
    assert keyed(lab, body, tuples) == ["a1", "b5", "a3", "None1", "None2"]


def test_a_deleted_key_starts_anew(lab: Lab) -> None:
    body = "n = state.get('none'); state.set(x)\n        if x == 0: state.delete()\n        return f'{n} {state.get()}'"
    assert keyed(lab, body, [("a", 1), ("a", 0), ("a", 2), ("b", 0)]) == ["none 1", "1 None", "none 2", "none None"]


def test_a_value_that_is_changed_but_not_set_stays_as_it_was(lab: Lab) -> None:
    body = "v = state.get([])\n        if x: state.set(v)\n        v.append(x)\n        return repr(state.get())"
    assert keyed(lab, body, [("a", 1), ("a", 0), ("a", 2), ("a", 0)]) == ["[]"] * 4


def test_values_come_back_as_they_were(lab: Lab) -> None:
    value = "[None, True, 1, 1.0, -0.0, 'é', b'\\xff', 2**64 - 1, -2**63, {'a': [], 3: {}}, [[]]]"
    body = f"seen = state.get()\n        state.set({value})\n        return repr(seen)"
    assert keyed(lab, body, [("a", 1), ("a", 2)])[1] == repr(eval(value))
    for scalar in ("None", "True", "1", "1.0", "'é'", "b'\\xff'"):
        body = f"seen = state.get('unset')\n        state.set({scalar})\n        return repr(seen)"
        assert keyed(lab, body, [("a", 1), ("a", 2)]) == ["'unset'", repr(eval(scalar))]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("(1, 2)", r"TypeError: state is of type tuple; use a list"),
        ("[{'a': {1}}]", r"state\[0\]\['a'\] is of type set; use a sorted list"),
        ("{1.5: 2}", r"state has a key of type float; expected str or int"),
        ("object()", r"state is of type object; expected None, bool"),
        ("2**64", r"OverflowError: state is 18446744073709551616"),
        ("'\\ud800'", r"UnicodeEncodeError"),
    ],
)
def test_a_value_that_a_snapshot_cannot_hold_is_refused(lab: Lab, value: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        keyed(lab, f"state.set({value})", [("a", 1)])


def test_a_tuple_that_fails_leaves_no_trace_in_the_state(lab: Lab) -> None:
    body = "n = state.get(0) + x; state.set(n)\n        if x == 5: 1 / 0\n        return 7 if x == 6 else str(n)"
    assert keyed(lab, body, [("a", 1), ("a", 5), ("a", 6), ("a", 1)], on_error="skip") == ["1", "2"]


def test_a_delta_names_changed_and_deleted_keys(lab: Lab) -> None:
    body = "state.delete() if x == 0 else state.set(x) if x > 0 else state.get()"
    case = lab.case(KEYED + body, ["k", "x:int"], ["y"], mode="keyed", key=[0, 1])
    kernel = case.kernel()
    kernel.process(case.rows([("a", 1), ("b", 2)]))
    delta = kernel.delta()
    assert delta is not None and delta.to_pylist() == [
        {"key_0": "a", "key_1": 1, "value": b"\x01", "gone": False},
        {"key_0": "b", "key_1": 2, "value": b"\x02", "gone": False},
    ]
    kernel.process(case.rows([("a", -1)]))
    assert kernel.delta() is None, "reading is no change"
    case = lab.case(KEYED + body, ["k", "x:int"], ["y"], mode="keyed", key=[0])
    kernel = case.kernel()
    kernel.process(case.rows([("a", 1), ("b", 2)]))
    kernel.delta()
    kernel.process(case.rows([("a", 0), ("c", 0)]))
    delta = kernel.delta()
    assert delta is not None and delta.to_pylist() == [{"key_0": "a", "value": None, "gone": True}]


def test_a_class_that_cannot_be_made_stops_the_run(lab: Lab) -> None:
    code = "class f:\n    def __init__(self): raise OSError('no file')\n    def process(self, state, x): pass\n"
    with pytest.raises(RunFailed, match=r"(?s)operator op: f\(\) raised OSError: no file.*\.py:2 in __init__"):
        lab.case(code, ["x:int"], ["y:int"], mode="keyed").kernel()
