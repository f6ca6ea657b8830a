"""Right topologies: each compiles to exactly this plan."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dadstorm import topology
from dadstorm.core.ports import DEAD_LETTERS
from dadstorm.errors import UserError
from dadstorm.plan import Field, Input, Operator, Plan, Replica, Routing

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
HERE = (Replica("localhost"),)


def compiled(folder: Path, text: str, **arguments: Any) -> Plan:
    path = folder / "t.yaml"
    path.write_text(textwrap.dedent(text))
    return topology.load(str(path), **{"out": str(folder / "out"), **arguments})


def one(folder: Path, operator: str, **arguments: Any) -> Operator:
    """The operator ``a`` over a source with a field of every type."""
    text = f"""\
        sources:
          t: {{csv: t.csv, fields: [n:int, s, x:float, ok:bool, at:timestamp]}}
        operators:
          a: {operator}
        """
    (folder / "t.csv").touch()
    return compiled(folder, text, **arguments)["a"]


def test_reach_compiles_to_exactly_this(tmp_path: Path) -> None:
    plan = topology.load(str(CONFIGS / "reach.yaml"), out=str(tmp_path))
    tweet = (Field("id", "int"), Field("user"), Field("url"))
    follower, count = (Field("follower"),), (Field("count", "int"),)
    file = {
        "type": "file", "format": "csv", "paths": [str(CONFIGS / "reach" / "tweets.csv")], "header": False,
        "delimiter": ",", "comment": None, "record_bytes_max": 16 << 20,
    }  # fmt: skip
    url = {"field": 2, "op": "=", "value": "www.tecnico.ulisboa.pt"}
    custom = {"function": "reach.followers", "mode": "row", "key": [], "with_id": False, "args": {}}
    written = {"format": "spark", "writes": "parquet", "path": str(tmp_path / "reach")}
    random, primary, hashing = Routing("random"), Routing("primary"), Routing("hashing", (0,))
    assert plan == Plan(
        "reach",
        (
            Operator("tweets", "source", file, (), tweet, 1, HERE, primary),
            Operator("tecnico", "filter", {"conditions": [url]}, (Input("tweets"),), tweet, 2, HERE * 2, random),
            Operator("followers", "custom", custom, (Input("tecnico"),), follower, 2, HERE * 2, random, 0, 10),
            Operator("people", "uniq", {"fields": [0]}, (Input("followers"),), follower, 2, HERE * 2, hashing),
            Operator("reach", "count", {"by": []}, (Input("people"),), count, 1, HERE * 2, primary),
            Operator("reach.sink", "sink", written, (Input("reach"),), count, 1, HERE, primary),
        ),
        base=str(CONFIGS),
    )


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_compiles_without_warnings_and_travels(path: Path, tmp_path: Path) -> None:
    plan = topology.load(str(path), out=str(tmp_path))
    assert plan.name == path.stem
    assert not plan.warnings
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan
    assert topology.load(str(path), out=str(tmp_path)) == plan


def test_settings_in_full(tmp_path: Path) -> None:
    plan = compiled(
        tmp_path,
        """\
        name: all-of-them
        semantics: at-least-once
        sources: {g: {generate: {n: counter}}}
        operators: {a: {input: g, dup: }}
        window: {rows: 1_000, bytes: 1.5MB}
        snapshot_every: 2.5s
        flush_every: 5 ms
        span: 1024
        seed: 42
        logging: full
        """,
        libs=[str(tmp_path)],
    )
    assert plan.operators[0].params["seed"] != 0
    assert plan == Plan(
        "all-of-them", plan.operators, "at-least-once", 1000, 3 << 19, 2500, 5, 1024, 42, "full", str(tmp_path),
        (str(tmp_path),),
    )  # fmt: skip


def test_the_name_is_the_files_made_fit_for_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "my topology (2).v3.yaml"
    path.write_text("sources: {g: {generate: {n: counter}}}\noperators: {a: {input: g, dup: }}\nwindow: 100\n")
    plan = topology.load(str(path))
    assert (plan.name, plan.window_rows, plan.window_bytes) == ("my-topology-2-v3", 100, 20 << 20)


CONDITIONS = [
    ("n = 3", {"field": 0, "op": "=", "value": 3}),
    ("1 == -3", {"field": 0, "op": "=", "value": -3}),
    ("n<>3", {"field": 0, "op": "!=", "value": 3}),
    ("n in 1, 2,3", {"field": 0, "op": "in", "value": [1, 2, 3]}),
    ("n in [1, 2]", {"field": 0, "op": "in", "value": [1, 2]}),
    ("n in(1)", {"field": 0, "op": "in", "value": [1]}),
    ("s = 3", {"field": 1, "op": "=", "value": "3"}),
    ("s > b c", {"field": 1, "op": ">", "value": "b c"}),
    ('s != " x ""y"" "', {"field": 1, "op": "!=", "value": ' x "y" '}),
    ('s = ""', {"field": 1, "op": "=", "value": ""}),
    ("s in ['it''s', \"a, b\", c d]", {"field": 1, "op": "in", "value": ["it's", "a, b", "c d"]}),
    (r's matches "^a\.b|c=\d+$"', {"field": 1, "op": "matches", "value": r"^a\.b|c=\d+$"}),
    ("x >= 1e3", {"field": 2, "op": ">=", "value": 1000.0}),
    ("x < 2", {"field": 2, "op": "<", "value": 2.0}),
    ("ok = TRUE", {"field": 3, "op": "=", "value": True}),
    ("at <= 1970-01-01T00:00:01", {"field": 4, "op": "<=", "value": 1_000_000}),
    ("at < 1970-01-01T01:00:00.5+01:00", {"field": 4, "op": "<", "value": 500_000}),
    ("5 = 1970-01-02", {"field": 4, "op": "=", "value": 86_400_000_000}),
]


@pytest.mark.parametrize(("text", "condition"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_conditions_as_text(tmp_path: Path, text: str, condition: dict[str, Any]) -> None:
    operator = one(tmp_path, "{input: t, filter: " + json.dumps(text) + "}")
    assert operator.params == {"conditions": [condition]}


def test_conditions_as_mappings_and_lists(tmp_path: Path) -> None:
    text = "{input: t, filter: [{field: 1, op: in, value: [1, 2]}, {field: s, op: '==', value: no}, ok != false]}"
    assert one(tmp_path, text).params["conditions"] == [
        {"field": 0, "op": "in", "value": [1, 2]},
        {"field": 1, "op": "=", "value": "no"},
        {"field": 3, "op": "!=", "value": False},
    ]


def test_uniq_and_count_are_hashed_by_their_fields(tmp_path: Path) -> None:
    assert one(tmp_path, "{input: t, uniq: [s, 1]}").routing == Routing("hashing", (1, 0))
    everything = one(tmp_path, "{input: t, uniq: }")
    assert (everything.params, everything.routing.key) == ({"fields": [0, 1, 2, 3, 4]}, (0, 1, 2, 3, 4))
    count = one(tmp_path, "{input: t, count: {by: [at, s], as: total}, replicas: 2}")
    assert count.params == {"by": [4, 1]}
    assert count.fields == (Field("at", "timestamp"), Field("s"), Field("total", "int"))
    assert (count.routing, count.slices, len(count.replicas)) == (Routing("hashing", (4, 1)), 2, 2)


def test_split_replaces_one_field(tmp_path: Path) -> None:
    split = one(tmp_path, "{input: t, split: {field: 2, separator: ';', as: word}, max_outputs: 5}")
    assert split.params == {"field": 1, "separator": ";"}
    assert [field.name for field in split.fields] == ["n", "word", "x", "ok", "at"]
    assert (split.output_bits, split.routing) == (3, Routing("primary"))


def test_routing_is_followed_where_there_is_no_state(tmp_path: Path) -> None:
    assert one(tmp_path, "{input: t, dup: , slices: 3}").routing == Routing("random")
    assert one(tmp_path, '{input: t, dup: , slices: 3, routing: "hashing(s, 1)"}').routing == Routing("hashing", (1, 0))
    assert one(tmp_path, "{input: t, dup: , slices: 3, routing: primary}").routing == Routing("primary")


def test_warnings_name_their_place(tmp_path: Path) -> None:
    plan = compiled(
        tmp_path,
        """\
        sources:
          g: {generate: {n: counter, m: int}}
          unused: {generate: {n: counter}}
        operators:
          u: {input: g, uniq: n, routing: random}
          same: {input: g, uniq: n, routing: hashing(n)}
          c: {input: g, count: , slices: 4, replicas: 2, routing: hashing(n)}
          d: {input: g, dup: , slices: 2, replicas: 3}
          p: {input: g, dup: , slices: 2, routing: primary}
          h: {input: g, dup: , replicas: 1, on: [localhost, 10.0.0.1]}
        sinks:
          s: {input: [u, same, d, p], csv: }
        """,
    )
    assert [warning.removeprefix(f"{tmp_path}/t.yaml:") for warning in plan.warnings] == [
        '3:3: nobody reads source "unused"; it is left out',
        '5:26: operator "u": routing is not followed: it has state, and its key decides',
        '7:3: nobody reads operator "c"; its tuples are dropped',
        '7:26: operator "c" has one state for the whole stream, so it has one slice',
        '7:50: operator "c": routing is not followed: it has one state for the whole stream, in one slice',
        '8:24: operator "d": 1 of 3 replicas have no slice and stand by',
        '9:35: operator "p": with routing primary the first of its 2 slices gets every tuple',
        '10:3: nobody reads operator "h"; its tuples are dropped',
        '10:41: operator "h": 2 hosts for 1 replicas; the last ones are not used',
    ]
    assert (plan["c"].slices, plan["c"].routing, len(plan["c"].replicas)) == (1, Routing("primary"), 2)
    assert "unused" not in [operator.name for operator in plan.operators]


def test_hosts_and_addresses(tmp_path: Path) -> None:
    plan = compiled(
        tmp_path,
        """\
        sources:
          g: {generate: {n: counter}, on: alpha}
        operators:
          a: {input: g, dup: , replicas: 3, on: [alpha, beta]}
          b: {input: a, dup: , address: [tcp://127.0.0.1:11000, tcp://beta:11001, tcp://10.0.0.9:11002]}
          c: {input: b, dup: , on: [127.0.0.1, 10.0.0.9, node.example.org:5000, '::1', 'fe80::1']}
        hosts: {alpha: 10.0.0.1:10005, beta: 10.0.0.2}
        """,
    )
    alpha, beta = Replica("10.0.0.1:10005"), Replica("10.0.0.2:10000")
    assert plan["g"].replicas == (alpha,)
    assert plan["a"].replicas == (alpha, beta, alpha)
    assert plan["b"].replicas == (
        Replica("localhost", "tcp://127.0.0.1:11000"),
        Replica("10.0.0.2:10000", "tcp://10.0.0.2:11001"),
        Replica("10.0.0.9:10000", "tcp://10.0.0.9:11002"),
    )
    hosts = [replica.host for replica in plan["c"].replicas]
    assert hosts == ["localhost", "10.0.0.9:10000", "node.example.org:5000", "localhost", "[fe80::1]:10000"]


def test_globs_are_sorted_by_bytes_and_lists_kept_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "B.txt", "é.txt", "z.log"):
        (tmp_path / name).touch()
    text = "sources: {t: {text: [z.log, '*.txt']}}\noperators: {a: {input: t, dup: }}\n"
    paths = compiled(tmp_path, text)["t"].params["paths"]
    assert [Path(path).name for path in paths] == ["z.log", "B.txt", "a.txt", "b.txt", "é.txt"]


def test_fields_from_headers_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text('\ufeff%no\n\nid;"the ""user"""\n1;ana\n', encoding="utf-8")
    (tmp_path / "none.csv").touch()
    text = pa.array(["x"]).dictionary_encode()
    columns = {"n": pa.array([1], pa.int32()), "t": pa.array([1], pa.timestamp("ms", "UTC")), "s": text}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    plan = compiled(
        tmp_path,
        """\
        sources:
          all: {csv: [none.csv, h.csv], header: true, delimiter: ;, comment: "%"}
          some: {csv: h.csv, header: true, delimiter: ;, comment: "%", fields: [id:int]}
          p: {parquet: p.parquet}
          q: {parquet: p.parquet, fields: [s:int, n:float]}
        sinks: {a: {input: all, csv: }, b: {input: some, csv: }, c: {input: p, csv: }, d: {input: q, csv: }}
        """,
    )
    assert plan["all"].fields == (Field("id"), Field('the "user"'))
    assert plan["some"].fields == (Field("id", "int"),)
    assert plan["p"].fields == (Field("n", "int"), Field("t", "timestamp"), Field("s"))
    assert plan["q"].fields == (Field("s", "int"), Field("n", "float"))


def test_generators(tmp_path: Path) -> None:
    plan = compiled(
        tmp_path,
        """\
        sources:
          g:
            generate:
              c: counter
              i: {int: [-5, 5]}
              f: {float: [0, 2]}
              b: bool
              w: {words: {count: 3, vocabulary: 9}}
              t: {timestamp: {start: 1970-01-01T00:00:01Z, step: 1s}}
              n: {choice: [1, 2]}
              x: {choice: [1, 2.5]}
              y: {choice: [true, false]}
              s: {choice: [yes, 1, "2"]}
            count: 10
            rate: 0.5
            seed: 3
        operators: {a: {input: g, dup: }}
        """,
    )
    types = ["int", "int", "float", "bool", "string", "timestamp", "int", "float", "bool", "string"]
    assert [field.type for field in plan["g"].fields] == types
    assert plan["g"].params == {
        "type": "generate",
        "count": 10,
        "rate": 0.5,
        "seed": 3,
        "generators": [
            {"kind": "counter"},
            {"kind": "int", "low": -5, "high": 5},
            {"kind": "float", "low": 0.0, "high": 2.0},
            {"kind": "bool"},
            {"kind": "words", "count": 3, "vocabulary": 9},
            {"kind": "timestamp", "start": 1_000_000, "step": 1_000_000},
            {"kind": "choice", "values": [1, 2]},
            {"kind": "choice", "values": [1.0, 2.5]},
            {"kind": "choice", "values": [True, False]},
            {"kind": "choice", "values": ["yes", "1", "2"]},
        ],
    }


def test_live_sources(tmp_path: Path) -> None:
    plan = compiled(
        tmp_path,
        """\
        sources:
          a: {tcp: 7000}
          b: {tcp: "tcp://0.0.0.0:7000", format: csv, fields: [x], delimiter: tab, journal: j, record_max: 0.5KB}
          c: {stdin: }
        operators: {d: {input: [a, b, c], dup: }}
        """,
    )
    assert plan["a"].params == {
        "type": "tcp", "listen": "127.0.0.1:7000", "format": "text", "delimiter": ",", "journal": None,
        "record_bytes_max": 1 << 20,
    }  # fmt: skip
    assert plan["b"].params == {
        "type": "tcp", "listen": "0.0.0.0:7000", "format": "csv", "delimiter": "\t", "journal": str(tmp_path / "j"),
        "record_bytes_max": 512,
    }  # fmt: skip
    assert plan["c"].params == {
        "type": "stdin", "format": "text", "delimiter": ",", "journal": None, "record_bytes_max": 1 << 20,
    }  # fmt: skip
    assert plan["c"].fields == (Field("line"),)


CUSTOM = '''\
from dadstorm.custom import batch_operator, keyed_operator


@keyed_operator(key="s", fields=["total:int"], max_outputs=3)
class Sum:
    def __init__(self, factor=1):
        self.factor = factor

    def process(self, state, n, s, x, ok, at):
        return None


@batch_operator(fields=["y"], with_id=True)
def whole(batch, ids):
    return batch
'''


def test_custom_follows_the_decorator_and_the_topology_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "own_functions.py").write_text(CUSTOM)
    said = one(tmp_path, "{input: t, custom: own_functions.Sum, args: {factor: 2}}")
    assert said.params == {
        "function": "own_functions.Sum", "mode": "keyed", "key": [1], "with_id": False, "args": {"factor": 2},
    }  # fmt: skip
    assert (said.fields, said.routing, said.output_bits) == ((Field("total", "int"),), Routing("hashing", (1,)), 2)
    over = one(tmp_path, "{input: t, custom: own_functions.Sum, key: [n, 2], fields: {a: float}, max_outputs: 1}")
    assert (over.params["key"], over.fields, over.output_bits) == ([0, 1], (Field("a", "float"),), 0)
    batch = one(tmp_path, "{input: t, custom: own_functions.whole}")
    assert (batch.params["mode"], batch.params["with_id"], batch.output_bits) == ("batch", True, 20)


def test_custom_modules_are_found_in_libs_too(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "own_library.py").write_text("def each(*fields):\n    return None\n")
    operator = one(tmp_path, "{input: t, custom: own_library.each, fields: a}", libs=[str(tmp_path / "lib")])
    assert operator.params["function"] == "own_library.each"


TERMINAL = """\
sources: {g: {generate: {n: counter}}}
operators:
  a: {input: g, dup: }
  b: {input: g, dup: , on_error: dead-letter}
  c: {input: a, dup: }
"""


def sinks(plan: Plan) -> dict[str, tuple[Any, ...]]:
    found = (operator for operator in plan.operators if operator.kind == "sink")
    return {one.name: (one.inputs[0], one.params["format"], one.params["path"]) for one in found}


def test_what_nobody_reads_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    dead = (Input("b", DEAD_LETTERS), "jsonl", str(out / "b.dead.jsonl"))
    plan = compiled(tmp_path, TERMINAL)
    assert sinks(plan) == {
        "b.sink": (Input("b"), "spark", str(out / "b")),
        "c.sink": (Input("c"), "spark", str(out / "c")),
        "b.dead": dead,
    }
    assert plan["b.dead"].fields == (Field("place"), Field("error"), Field("record"))
    assert plan["b"].on_error == "dead-letter"
    plain = {"b.sink": (Input("b"), "csv", str(out / "b.csv")), "c.sink": (Input("c"), "csv", str(out / "c.csv"))}
    assert sinks(compiled(tmp_path, TERMINAL, sink="csv")) == {**plain, "b.dead": dead}
    assert sinks(compiled(tmp_path, f"ragged: true\n{TERMINAL}")) == {**plain, "b.dead": dead}
    shown = sinks(compiled(tmp_path, TERMINAL, sink="console"))
    assert shown == {"b.sink": (Input("b"), "console", None), "c.sink": (Input("c"), "console", None), "b.dead": dead}


def test_own_sinks_and_the_argument_that_replaces_them(tmp_path: Path) -> None:
    text = TERMINAL + "sinks:\n  x: {input: a, jsonl: deep/er.jsonl}\n"
    text += "  y: {input: g, parquet: }\n  z: {input: c, console: }\n"
    out = tmp_path / "out"
    plan = compiled(tmp_path, text)
    own = {name: sink for name, sink in sinks(plan).items() if name != "b.dead"}
    assert own == {
        "x": (Input("a"), "jsonl", str(out / "deep" / "er.jsonl")),
        "y": (Input("g"), "parquet", str(out / "y.parquet")),
        "z": (Input("c"), "console", None),
    }
    replaced = sinks(compiled(tmp_path, text, sink="jsonl"))
    assert replaced["c.sink"] == (Input("c"), "jsonl", str(out / "c.jsonl"))
    assert sorted(replaced) == ["b.dead", "b.sink", "c.sink"]


def test_outputs_go_to_out_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = compiled(tmp_path, TERMINAL, out=None)
    assert plan["c.sink"].params["path"] == str(tmp_path / "out" / "c")


def test_producers_come_first_and_else_the_order_is_the_files(tmp_path: Path) -> None:
    text = """\
        operators:
          z: {input: [m, g], dup: }
          m: {input: h, dup: }
          b: {input: g, dup: }
          a: {input: g, dup: }
        sources:
          h: {generate: {n: counter}}
          g: {generate: {n: counter}}
        """
    names = [operator.name for operator in compiled(tmp_path, text).operators]
    assert names == ["h", "g", "m", "z", "b", "a", "z.sink", "b.sink", "a.sink"]


def bits(plan: Plan) -> dict[str, tuple[Any, ...]]:
    return {
        op.name: (tuple(link.align for link in op.inputs), op.input_bits, op.output_bits)
        for op in plan.operators
        if op.kind not in ("source", "sink")
    }


def test_id_bits_and_alignment_at_a_merge_of_different_widths(tmp_path: Path) -> None:
    text = """\
        sources: {g: {generate: {s: words}}}
        operators:
          wide: {input: g, split: s, max_outputs: 1000}
          wider: {input: wide, split: s, max_outputs: 2}
          join: {input: [g, wider, wide], dup: }
          last: {input: join, split: s}
        """
    assert bits(compiled(tmp_path, text)) == {
        "wide": ((0,), 0, 10),
        "wider": ((0,), 0, 1),
        "join": ((11, 0, 1), 2, 0),
        "last": ((0,), 0, 20),
    }


@pytest.mark.parametrize(("count", "share"), [(1, 20), (3, 20), (4, 15), (10, 6)])
def test_undeclared_outputs_share_the_bits_evenly(tmp_path: Path, count: int, share: int) -> None:
    chain = "".join(f"  s{i}: {{input: {f's{i - 1}' if i else 'g'}, split: s}}\n" for i in range(count))
    plan = compiled(tmp_path, "sources: {g: {generate: {s: words}}}\noperators:\n" + chain)
    assert {output for _, _, output in bits(plan).values()} == {share}
    lowered = [warning for warning in plan.warnings if f"may give at most {1 << share} outputs per tuple" in warning]
    assert len(lowered) == (count if share < 20 else 0)


def test_describe_shows_the_plan(tmp_path: Path) -> None:
    text = """\
        sources: {g: {generate: {s: words, n: counter}}}
        operators:
          w: {input: g, split: s, replicas: 2, slices: 4, on_error: dead-letter}
          c: {input: w, count: s, routing: random, on: 10.0.0.1}
        """
    shown = topology.describe(compiled(tmp_path, text))
    rows = [re.split(r"  +", line) for line in shown.splitlines()]
    assert ["w", "split", "g", "4", "2", "2 x localhost", "random", "20 of 20", "s, n:int"] in rows
    assert ["c", "count", "w", "1", "1", "10.0.0.1:10000", "hashing(s)", "0 of 20", "s, count:int"] in rows
    assert any(row[:3] == ["w.dead", f"sink jsonl {tmp_path}/out/w.dead.jsonl", "w (dead letters)"] for row in rows)
    assert "window 1048576 tuples, 20MB; snapshots every 1s; flush every 100ms; span 65536; seed 0" in shown
    assert "1 warning:\n" in shown


def test_a_folder_without_a_name_is_none(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("sources: {n: {generate: {n: counter}, count: 1}}\noperators: {d: {input: n, dup: }}\n")
    with pytest.raises(UserError, match="--out: found nothing; expected a folder"):
        topology.load(str(path), out="")
