"""What an operator's clauses say, taken as generously as their meaning allows.

``routing``, ``rep_fact`` and ``address`` never change what an operator emits, so what is odd or missing there is set
right with a warning wherever it is clear what was meant. ``input_ops`` and ``operator_spec`` decide over the output:
there, what is not clear is a mistake.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from dadstorm.legacy.addresses import Address, addresses
from dadstorm.legacy.statements import OperatorText, Piece
from dadstorm.plan import REPLICAS_MAX
from dadstorm.topology.fields import FIELDS_MAX
from dadstorm.topology.report import Place, Report, closest, nearest
from dadstorm.topology.settings import NAME

Kind = Literal["UNIQ", "COUNT", "DUP", "FILTER", "CUSTOM"]

KINDS: tuple[Kind, ...] = get_args(Kind)
POLICIES = ("primary", "random", "hashing")
COMPARISONS = ("<", ">", "=")
FORMS = {
    "UNIQ": "UNIQ FIELD",
    "COUNT": "COUNT",
    "DUP": "DUP",
    "FILTER": 'FILTER FIELD, <|>|=, VALUE',
    "CUSTOM": "CUSTOM DLL, CLASS, METHOD",
}
QUOTES = {'"': '"', "“": "”", "'": "'"}

_PART = re.compile(r'((?:"[^"]*"|“[^”]*”|[^,])*)(,|\Z)', re.DOTALL)
_HASHING = re.compile(r"hashing\s*[(\[{]?\s*([^\s()\[\]{}]*)\s*[)\]}]?\Z", re.IGNORECASE)
_FILTER = re.compile(r"""\s*([^\s,<>=!]+)\s*,?\s*["“]?([<>=!]+)["”]?\s*,?\s*(.*)\Z""", re.DOTALL)
_MODULE = re.compile(r"(?:.*[\\/])?([^\\/]+?)(\.dll)?\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Routing:
    place: Place
    policy: str
    field: int = 0
    """For hashing, counted from 1."""

    def __str__(self) -> str:
        return f"hashing({self.field})" if self.policy == "hashing" else self.policy


@dataclass(frozen=True)
class Spec:
    """What the operator does. ``field`` counts from 1; 0 where there is none."""

    place: Place
    kind: Kind
    field: int = 0
    op: str = ""
    value: str = ""
    function: str = ""
    """module.Class.method"""


@dataclass(frozen=True)
class OldOperator:
    name: str
    place: Place
    sources: tuple[Piece, ...]
    input_place: Place
    replicas: int
    replicas_place: Place
    routing: Routing | None
    addresses: tuple[Address | None, ...]
    """One per replica, None where any will do; () if the file gives none."""
    address_place: Place
    spec: Spec

    @property
    def field_needed(self) -> int:
        """The highest field that the operator asks of its input."""
        routed = self.routing.field if self.routing and not self.stateful else 0
        return max(self.spec.field, routed)

    @property
    def stateful(self) -> bool:
        return self.spec.kind in ("UNIQ", "COUNT")


def operator(text: OperatorText, report: Report) -> OldOperator:
    """Understand an operator. After a mistake, something stands in for what is wrong, so that the rest can be checked:
    nobody, where sources are; as many replicas as there can be, so that none of them is missed."""
    name, clauses = text.name, text.clauses
    what = f'operator "{name.text}"'
    if not NAME.match(name.text):
        report.mistake(name.place, f"{what}: expected a name of letters, digits, _ and -, no - first: rename it")
    for keyword, example in (("input_ops", "input_ops SOURCE, ..."), ("operator_spec", "operator_spec COUNT")):
        if keyword not in clauses and text.whole:
            cure = f"expected such as  {example}  (if this line is a comment, put % in front)"
            report.mistake(name.place, f"{what}: {keyword} is missing; {cure}")
    sources = _sources(clauses.get("input_ops"), what, report)
    spec = _spec(clauses.get("operator_spec"), what, report)
    routing = _routing(clauses.get("routing"), name.place, what, report)
    given = addresses(clauses.get("address"), name.place, what, report)
    count = _replicas(clauses.get("rep_fact"), given, name.place, what, report)
    return OldOperator(
        name.text, name.place, sources, _place(clauses, "input_ops", name), count, _place(clauses, "rep_fact", name),
        routing, _bound(given, count, _place(clauses, "address", name), what, report),
        _place(clauses, "address", name), spec or Spec(name.place, "DUP"),
    )  # fmt: skip


def _bound(
    given: tuple[Address, ...], count: int, place: Place, what: str, report: Report
) -> tuple[Address | None, ...]:
    """An address, or none in particular, for every replica."""
    numbers = f"{len(given)} address{'es' if len(given) > 1 else ''} for rep_fact {count}"
    if len(given) > count:
        report.warn(place, f"{what}: {numbers}; only the first {count} will be used")
        return given[:count]
    if given and len(given) < count:
        report.warn(place, f"{what}: {numbers}; the other replicas bind any port of this machine")
        return (*given, *[None] * (count - len(given)))
    return given


def _place(clauses: dict[str, Piece], keyword: str, name: Piece) -> Place:
    return clauses[keyword].place if keyword in clauses else name.place


def unquoted(text: str) -> str:
    """A value without the blanks and the quotes around it."""
    text = text.strip()
    if len(text) > 1 and QUOTES.get(text[0]) == text[-1]:
        return text[1:-1]
    return text


def parts(piece: Piece) -> list[Piece]:
    """What stands between the commas that are not in quotes, blanks trimmed, quotes kept."""
    found, at = [], 0
    while True:
        match = _PART.match(piece.text, at)
        assert match, "any text is a part"
        start = at + len(match[1]) - len(match[1].lstrip())
        # Places within a value that spans lines are those of its beginning: near enough to find it.
        spans = "\n" in piece.text[:start]
        place = piece.place if spans else piece.place._replace(column=piece.place.column + start)
        found.append(Piece(match[1].strip(), place))
        if not match[2]:
            return found
        at = match.end()


def _sources(piece: Piece | None, what: str, report: Report) -> tuple[Piece, ...]:
    if piece is None:
        return ()
    given = [Piece(unquoted(part.text), part.place) for part in parts(piece)]
    named = tuple(part for part in given if part.text)
    if not named:
        report.mistake(piece.place, f"{what}: input_ops is empty; expected operators or files, separated by commas")
    elif len(named) < len(given):
        report.warn(piece.place, f"{what}: input_ops has nothing between two commas, or after the last; passed over")
    return named


def _replicas(piece: Piece | None, given: tuple[Address, ...], place: Place, what: str, report: Report) -> int:
    if piece is None:
        count = max(1, len(given))
        report.warn(place, f"{what}: rep_fact is missing; taken as {count}")
        return count
    text = unquoted(piece.text)
    if not re.fullmatch(r"\+?[0-9]{1,9}", text) or not 1 <= int(text) <= REPLICAS_MAX:
        expected = f"expected how many replicas, from 1 to {REPLICAS_MAX}"
        report.mistake(piece.place, f'{what}: rep_fact: found "{piece.text}"; {expected}')
        return REPLICAS_MAX
    return int(text)


def _routing(piece: Piece | None, place: Place, what: str, report: Report) -> Routing | None:
    """None if the file gives none, or nothing that can be understood."""
    if piece is None or not piece.text:
        report.warn(piece.place if piece else place, f"{what}: routing is missing; taken as random")
        return None
    text = unquoted(piece.text)
    word = re.split(r"[\s(\[{]", text, maxsplit=1)[0]
    policy = closest(word, POLICIES)
    expected = "expected primary, random or hashing(FIELD)"
    if policy is None:
        report.mistake(piece.place, f'{what}: routing: found "{piece.text}"; {expected}')
        return None
    if policy != word.lower():
        report.warn(piece.place, f'{what}: routing "{word}" is taken as {policy}')
    rest = text[len(word) :].strip()
    if policy != "hashing":
        if rest:
            message = f'found "{rest}" after {policy}; expected nothing there'
            report.mistake(piece.place, f"{what}: routing: {message}")
            return None
        return Routing(piece.place, policy)
    hashing = _HASHING.match(f"hashing {rest}")
    number = hashing[1] if hashing else None
    if number == "":
        report.warn(piece.place, f"{what}: routing hashing without a field is taken as hashing(1)")
        number = "1"
    elif rest.startswith(("[", "{")) or rest[:1].isalnum():
        report.warn(piece.place, f"{what}: routing {text} is taken as hashing({number})")
    field = _number(number or rest, piece.place, f"{what}: routing: hashing", report)
    return None if field is None else Routing(piece.place, policy, field)


def _number(text: str, place: Place, what: str, report: Report) -> int | None:
    text = unquoted(text)
    if re.fullmatch(r"[0-9]{1,9}", text) and 1 <= int(text) <= FIELDS_MAX:
        return int(text)
    report.mistake(place, f'{what}: found "{text}"; expected a field\'s number, counted from 1, at most {FIELDS_MAX}')
    return None


def _spec(piece: Piece | None, what: str, report: Report) -> Spec | None:
    if piece is None:
        return None
    match = re.match(r"([^\s,]*)[\s,]*", piece.text)
    assert match
    word = unquoted(match[1])
    what = f"{what}: operator_spec"
    kind = next((known for known in KINDS if known == word.upper()), None)
    if kind is None:
        expected = f"expected {', '.join(FORMS.values())}"
        report.mistake(piece.place, f'{what}: found "{word}"; {expected}{nearest(word, KINDS)}')
        return None
    rest = Piece(piece.text[match.end() :], piece.place._replace(column=piece.place.column + match.end()))
    if kind == "FILTER":
        return _filter(piece, rest, what, report)
    if kind == "CUSTOM":
        return _custom(piece, rest, what, report)
    if kind == "UNIQ":
        field = _number(rest.text, rest.place, f"{what}: UNIQ", report)
        return None if field is None else Spec(piece.place, kind, field)
    if rest.text:
        cure = f"expected {kind} alone (a comment needs a line of its own, after %)"
        report.mistake(rest.place, f'{what}: found "{rest.text}" after {kind}; {cure}')
        return None
    return Spec(piece.place, kind)


def _filter(piece: Piece, rest: Piece, what: str, report: Report) -> Spec | None:
    match = _FILTER.match(rest.text)
    if not match:
        message = f'found "{piece.text}"; expected {FORMS["FILTER"]}'
        report.mistake(rest.place, f"{what}: {message}")
        return None
    number, op, written = match.groups()
    field = _number(number, rest.place, f"{what}: FILTER", report)
    if op == "==":
        report.warn(rest.place, f"{what}: FILTER: == is taken as =")
        op = "="
    if op not in COMPARISONS:
        report.mistake(rest.place, f'{what}: FILTER: found "{op}"; expected <, > or =: the language has no others')
        return None
    value = _value(written, rest.place, what, report)
    return None if field is None or value is None else Spec(piece.place, "FILTER", field, op, value)


def _value(written: str, place: Place, what: str, report: Report) -> str | None:
    if not written:
        report.mistake(place, f'{what}: FILTER: the value is missing; expected {FORMS["FILTER"]} (no text: "")')
        return None
    value = unquoted(written)
    quoted = value != written.strip()
    if not quoted and "," in value:
        report.mistake(place, f'{what}: FILTER: found "{written}"; expected one value: put it in double quotes')
        return None
    if not quoted and value[0] in QUOTES:
        report.mistake(place, f"{what}: FILTER: the quote of {written} is not closed; close it")
        return None
    return value


def _custom(piece: Piece, rest: Piece, what: str, report: Report) -> Spec | None:
    given = [unquoted(part.text) for part in parts(rest)]
    if len(given) == 1 and len(given[0].split()) == 3:
        given = given[0].split()
    if len(given) != 3 or not all(given):
        report.mistake(rest.place, f'{what}: found "{piece.text}"; expected {FORMS["CUSTOM"]}')
        return None
    library, owner, method = given
    module = _MODULE.match(library)
    names = [module[1] if module else library, *owner.split("."), method]
    if module is None or not all(name.isidentifier() for name in names):
        cure = "expected names that Python can have (letters, digits, _): rename the module, and the file"
        report.mistake(rest.place, f"{what}: CUSTOM {library}, {owner}, {method}: {cure}")
        return None
    if module[0] != module[1] + (module[2] or ""):
        cure = f"{module[1]}.py is looked for in the configuration's folder and in those of --lib"
        report.warn(rest.place, f"{what}: the folder of {library} is passed over; {cure}")
    return Spec(piece.place, "CUSTOM", function=".".join(names))
