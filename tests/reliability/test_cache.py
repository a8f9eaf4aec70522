"""Cache entries that are damaged, truncated or of another format: rebuilt, and never wrong."""

from __future__ import annotations

import random

import pytest
import torch

import torchmux
from tests.reliability.program import check
from tests.tiers import slow_but
from torchmux.backends.common.cache.cache import default_cache
from torchmux.config import config


@pytest.fixture(autouse=True)
def nothing_compiled_yet():
    """What an earlier test compiled would not be looked up in the cache again."""
    torchmux.reset()


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def spoiled(content: bytes, numbers: random.Random) -> bytes:
    at = numbers.randrange(len(content))
    kind = numbers.randrange(4)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + bytes(min(50, len(content) - at)) + content[at + 50 :]
    if kind == 2:
        return content + content[at:]
    return content[:at] + bytes([content[at] ^ (1 << numbers.randrange(8))]) + content[at + 1 :]


@pytest.mark.parametrize("rounds", slow_but([5, 240], 5))
def test_damage(rounds, tmp_path):
    numbers = random.Random(rounds)
    with config.patch(cache_dir=tmp_path):
        check(2)
        for _ in range(rounds):
            path = numbers.choice(files(tmp_path / "artifacts"))
            path.write_bytes(spoiled(path.read_bytes(), numbers))
            torchmux.reset()
            assert check(2) == (2, 0)


KINDS = [
    b"",
    b"C",
    b"R",
    b"Cnull\n",
    b"C{}\n",
    b"R[]",
    b'R{"x": 1}',
    b"C{\n",
    b"[]",
    b"{}",
    b"\x00" * 40,
    b"null",
    b"7",
]


def test_payloads_that_are_something_else(tmp_path, caplog):
    """With a valid checksum, as another version of torchmux might have left them."""
    with config.patch(cache_dir=tmp_path):
        check(1)
        for payload in KINDS:
            for key in default_cache().entries():
                default_cache().store(key, payload)
            torchmux.reset()
            x = torch.linspace(-1, 1, 81).reshape(9, 9)
            f = torchmux.compile(lambda x: torch.softmax(x * 0.5, -1).cumsum(0) + 0, backend="native", strict=True)
            for _ in range(2):
                torch.testing.assert_close(f(x), torch.softmax(x * 0.5, -1).cumsum(0) + 0)
