"""Standard input on its way to its source: what the front end's pump and the source say to each other.

The pump makes a token for its life, the *session*. What it sends is a stream of whole lines (a last one without a
newline gets one, too long ones are shortened), and a position is a number of bytes of that stream.

1. Whoever pumps connects and says the token.
2. The source answers with the position up to which its journal has this session's stream; of a session that it does
   not know, that is 0.
3. The pump sends the stream from there on, in pieces: a length, and so many bytes. A length of 0 is the end of input.
4. The source says, now and then, up to where its journal has the stream by now; and ``ALL`` once it has the end.

Why nothing gets lost and nothing comes twice, whoever of the two loses the connection, and whenever: the pump keeps
what the journal has not, each frame of the journal tells the position after its lines, so lines and position get there
together, and whoever takes over at the source begins with an answer that is the journal's. Half a line is never in the
journal, so it comes again. A connection that ends says nothing about the input: only a length of 0 does.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

TOKEN_BYTES = 16
PIECE_BYTES_MAX = 1 << 16
POSITION = struct.Struct("<Q")
LENGTH = struct.Struct("<I")
ALL = (1 << 64) - 1
"""As a position: the source is complete, nothing more is wanted."""
OVER_LIMIT = 2
"""A line that is longer than the limit is cut to so much more than that, which shows that it was too long though a
carriage return may be its last byte."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How far a source has got with what is pumped to it."""

    session: bytes
    position: int


def piece(data: bytes) -> bytes:
    """Some bytes of the stream as they are sent; none of them are the end of input."""
    return LENGTH.pack(len(data)) + data


def stdin_path(sockets: str, operator: str) -> str:
    """Where a stdin source listens; the front end connects there with ``clients.connect_unix``."""
    return os.path.join(os.path.abspath(sockets), f"{operator}.stdin")
