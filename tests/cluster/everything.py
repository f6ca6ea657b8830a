"""A topology with every operator in it, its input, and what it must give, worked out in plain Python.

The expected bytes share no code with DADSTORM. An ID here is a seq and a text of 0s and 1s, to which every operator
with several inputs appends the number of the input and every expanding operator the number of the output; texts of
different length meet filled up with 0s on the right. Sorting by (seq, text) is then all there is to a stream's order.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FUNCTIONS = '''
"""The user's code of the topology beside it: one of each kind."""

import pyarrow as pa
import pyarrow.compute as pc

from dadstorm.custom import batch_operator, keyed_operator, operator


@operator(fields=["n:int", "user", "part"], max_outputs=4)
def halves(n, user, word, price):
    """Every word in two parts; those of some users twice, short words not at all, and one word is refused."""
    if len(word) < 3:
        return
    if word == "end":
        raise ValueError(f"{user} may not end")
    for _ in range(2 if user.endswith("3") else 1):
        yield n, user, word[: len(word) // 2]
        yield n, user, word[len(word) // 2 :]


@batch_operator(fields=["n:int", "user", "part"])
def loud(batch):
    """In capitals, a tuple for a tuple."""
    n, user, part = batch.columns
    return pa.RecordBatch.from_arrays([n, user, pc.utf8_upper(part)], ["n", "user", "part"])


@batch_operator(fields=["n:int", "user", "part"], max_outputs=2)
def some(batch):
    """Every tuple whose n divides by 3 twice, the others of even n once."""
    rows = batch.column(0).to_pylist()
    parents = [i for i, n in enumerate(rows) for _ in range(2 if n % 3 == 0 else 1 if n % 2 == 0 else 0)]
    return batch.take(pa.array(parents, pa.int64())), parents


@keyed_operator(key="user", fields=["user", "n:int", "sum:float", "last"])
class Spent:
    """What a user has spent so far, and on which word before this one."""

    def process(self, state, n, user, word, price):
        before = state.get({"sum": 0.0, "last": ""})
        now = {"sum": round(before["sum"] + price, 2), "last": word}
        state.set(now)
        return user, n, now["sum"], before["last"]
'''

FIELDS = "fields: [n:int, user, text, price:float]"

TOPOLOGY = """
name: everything
semantics: SEMANTICS
window: WINDOW
sources:
  orders:  {csv: orders.csv, FIELDS, SOURCE}
  clicks:  {jsonl: clicks.jsonl, FIELDS, SOURCE}
  ticks:   {generate: {n: counter}, count: TICKS, SOURCE}
operators:
  cheap:   {input: orders, filter: price < 8, FREE}
  known:   {input: [orders, clicks], filter: user != u7, FREE}
  either:  {input: [cheap, known], dup: , FREE}                     # an order may come by both
  words:   {input: either, split: text, max_outputs: 8, FREE}
  parts:   {input: words, custom: functions.halves, on_error: dead-letter, FREE}  # expands what was expanded
  loud:    {input: parts, custom: functions.loud, FREE}
  some:    {input: loud, custom: functions.some, FREE}
  spent:   {input: words, custom: functions.Spent, KEYED}
  first:   {input: some, uniq: [user, part], KEYED}
  often:   {input: [parts, some], count: part, KEYED}
  total:   {input: first, count: , KEYED}
  numbers: {input: [total, ticks], dup: , FREE}
flush_every: 20ms
"""
DEAD = "parts.dead"


class Sizes(NamedTuple):
    orders: int
    clicks: int
    ticks: int


class Row(NamedTuple):
    seq: int
    sub: str
    values: tuple[Any, ...]


Stream = list[Row]


def write(
    folder: Path,
    sizes: Sizes,
    *,
    replicas: int = 2,
    slices: int = 3,
    routing: str | None = None,
    semantics: str = "exactly-once",
    window: int = 1 << 18,
) -> Path:
    """The topology file, with its data and functions beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    spread = f"replicas: {replicas}, slices: {slices}"
    routed = f"{spread}, routing: {routing}" if routing else spread
    text = TOPOLOGY.replace("FIELDS", FIELDS).replace("TICKS", str(sizes.ticks)).replace("WINDOW", str(window))
    text = text.replace("SEMANTICS", semantics).replace("SOURCE", spread).replace("FREE", routed)
    text = text.replace("KEYED", spread)
    (folder / "functions.py").write_text(FUNCTIONS)
    orders, clicks = data(sizes)
    with open(folder / "orders.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(orders)
    with open(folder / "clicks.jsonl", "w", encoding="utf-8") as file:
        for n, user, words, price in clicks:
            print(json.dumps({"n": n, "user": user, "text": words, "price": price}, ensure_ascii=False), file=file)
    path = folder / "everything.yaml"
    path.write_text(text)
    return path


Record = tuple[int, str, str, float]


def data(sizes: Sizes) -> tuple[list[Record], list[Record]]:
    """The records of both files; texts with blanks at their ends, none at all, commas, quotes and umlauts."""
    chance = random.Random(1)
    words = ["storm", "ids", "a", 'say "so"', "x,y", "grün", "tile", "slices", "of", "frontier"]

    def record(n: int) -> Record:
        text = " ".join(chance.choices(words, k=chance.randint(0, 4))) + chance.choice(["", " ", "  end"])
        return n, f"u{chance.randint(0, 9)}", text, chance.randint(0, 1600) / 100

    return [record(n) for n in range(sizes.orders)], [record(n) for n in range(sizes.clicks)]


def expected(sizes: Sizes) -> dict[str, Stream]:
    """What reaches each sink."""
    orders, clicks = (source(records) for records in data(sizes))
    ticks = source([(n,) for n in range(sizes.ticks)])
    cheap = [row for row in orders if row.values[3] < 8]
    known = [row for row in merged(orders, clicks) if row.values[1] != "u7"]
    either = merged(cheap, known)
    words = expanded(either, 3, lambda n, user, text, price: [(n, user, word, price) for word in text.split()])
    parts = expanded([row for row in words if row.values[2] != "end"], 2, halves)
    refused = [dead_letter(row) for row in words if row.values[2] == "end"]
    loud = expanded(parts, 0, lambda n, user, part: [(n, user, part.upper())])
    some = expanded(loud, 1, lambda n, user, part: [(n, user, part)] * (2 if n % 3 == 0 else 1 if n % 2 == 0 else 0))
    spent = expanded(words, 0, Spent())
    first = firsts(some, lambda n, user, part: (user, part))
    often = counted(merged(parts, some), lambda n, user, part: (part,))
    total = counted(first, lambda n, user, part: ())
    return {"spent": spent, "often": often, "numbers": merged(total, ticks), DEAD: refused}


def source(records: Iterable[tuple[Any, ...]]) -> Stream:
    return [Row(seq, "", values) for seq, values in enumerate(records)]


def merged(*inputs: Stream) -> Stream:
    """Two inputs, so one digit for which."""
    width = max(len(row.sub) for rows in inputs for row in rows)
    rows = [Row(r.seq, r.sub.ljust(width, "0") + str(i), r.values) for i, rows in enumerate(inputs) for r in rows]
    return sorted(rows, key=lambda row: (row.seq, row.sub))


def expanded(rows: Stream, bits: int, function: Callable[..., Sequence[tuple[Any, ...]]]) -> Stream:
    """The outputs of every row, with as many digits as the most outputs need."""
    digits = f"0{bits}b" if bits else ""
    return [
        Row(row.seq, row.sub + (format(ordinal, digits) if bits else ""), values)
        for row in rows
        for ordinal, values in enumerate(function(*row.values))
    ]


def halves(n: int, user: str, word: str, price: float) -> list[tuple[Any, ...]]:
    if len(word) < 3:
        return []
    middle = len(word) // 2
    return [(n, user, word[:middle]), (n, user, word[middle:])] * (2 if user[-1] == "3" else 1)


def dead_letter(row: Row) -> Row:
    """Where it happened, with the ID as numbers; what was raised and where; the record."""
    line = FUNCTIONS[: FUNCTIONS.index("raise ValueError")].count("\n") + 1
    error = f"ValueError: {row.values[1]} may not end (functions.py:{line})"
    record = compact(dict(zip(("n", "user", "text", "price"), row.values, strict=True)))
    return Row(row.seq, row.sub, (f"operator parts, ID ({row.seq}, {int(row.sub, 2)})", error, record))


class Spent:
    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._words: dict[str, str] = {}

    def __call__(self, n: int, user: str, word: str, price: float) -> list[tuple[Any, ...]]:
        self._sums[user] = round(self._sums[user] + price, 2)
        before = self._words.get(user, "")
        self._words[user] = word
        return [(user, n, self._sums[user], before)]


def firsts(rows: Stream, key: Callable[..., Any]) -> Stream:
    seen: dict[Any, Row] = {}
    for row in rows:
        seen.setdefault(key(*row.values), row)
    return list(seen.values())


def counted(rows: Stream, key: Callable[..., tuple[Any, ...]]) -> Stream:
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    out = []
    for row in rows:
        by = key(*row.values)
        counts[by] += 1
        out.append(Row(row.seq, row.sub, (*by, counts[by])))
    return out


NAMES = {
    "spent": ("user", "n", "sum", "last"),
    "often": ("part", "count"),
    "numbers": ("count",),
    DEAD: ("place", "error", "record"),
}


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_csv(rows: Stream) -> bytes:
    """RFC 4180 without header; a float always shows that it is one, which is what ``repr`` does for these."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(row.values for row in rows)
    return out.getvalue().encode()


def as_jsonl(name: str, rows: Stream) -> bytes:
    return "".join(compact(dict(zip(NAMES[name], row.values, strict=True))) + "\n" for row in rows).encode()


@cache
def files(sizes: Sizes, form: str = "csv") -> dict[str, bytes]:
    """The output folder, byte for byte; dead letters are JSON lines whatever the results are."""
    wanted = {}
    for name, rows in expected(sizes).items():
        is_csv = form == "csv" and name != DEAD
        wanted[f"{name}.{'csv' if is_csv else 'jsonl'}"] = as_csv(rows) if is_csv else as_jsonl(name, rows)
    return wanted
