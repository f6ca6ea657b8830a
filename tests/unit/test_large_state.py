"""State that is too large to be given to anybody stops its run, and not the PCS that holds the copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from dadstorm.core.messages import Copy, Peer, Seek
from dadstorm.core.numbered import TooLarge
from dadstorm.core.vault import Delta, Vault
from dadstorm.wire import control
from tests.unit.run_kit import MASTER, Host, planned

A = "127.0.0.1:1"
TOPOLOGY = f"""
hosts: {{a: "{A}"}}
sources: {{numbers: {{generate: {{n: counter}}, count: 5, on: a}}}}
operators: {{seen: {{input: numbers, uniq: n, on: a}}}}
sinks: {{out: {{input: seen, csv: x.csv, on: a}}}}
"""
SEEN = Peer(1, 0)


def test_a_copy_that_no_message_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(planned(tmp_path, TOPOLOGY), A, monkeypatch)
    host.start()
    host.hear(Copy(SEEN.operator, 0, 0, SEEN.replica, None, 8))

    def base(vault: Vault) -> Delta:
        raise TooLarge(3 << 30)

    monkeypatch.setattr(Vault, "base", base)
    host.die(SEEN)
    host.hear(Seek(*SEEN, 1, (0,), 1))
    (failed,) = host.wire.to(MASTER, control.Failed)
    assert Peer(failed.operator, failed.replica) == SEEN and failed.fault == "run"
    assert "the copy of the state of seen" in failed.text and "3072 MB" in failed.text
    assert "several replicas" in failed.text
