"""An endpoint is told addresses by others: one that is none must not end the process that is told it."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from dadstorm.wire import control, keys
from dadstorm.wire.codec import TOKEN_BYTES
from dadstorm.wire.endpoint import Endpoint, is_address

ODD = ["ipc://@", "tcp://[[:5", "tcp://::::1:5", "tcp://-:0", "tcp://a]:9", "tcp://[::1:7", "tcp://127.0.0.1:0"]


@pytest.mark.parametrize("address", ODD)
@pytest.mark.parametrize("guarded", [True, False], ids=["with keys", "without"])
def test_what_looks_like_an_address_and_is_none_is_harmless(
    tmp_path_factory: pytest.TempPathFactory, address: str, guarded: bool
) -> None:
    assert is_address(address)
    folder = str(tmp_path_factory.mktemp("keys"))
    if guarded:
        keys.make(folder)
    endpoint = Endpoint(bytes(TOKEN_BYTES), keys=keys.load(folder) if guarded else None)
    try:
        with capture_logs():
            endpoint.send(address, control.Stop())
            endpoint.send(address, control.Stop())
    finally:
        endpoint.close()
