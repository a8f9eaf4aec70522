"""``save_cache_artifacts`` and ``load_cache_artifacts``."""

from __future__ import annotations

import hashlib
import io
import random
import warnings
import zipfile

import pytest

import torchmux
from torchmux.backends.common.cache.artifacts import InvalidArtifacts
from torchmux.backends.common.cache.cache import default_cache
from torchmux.backends.common.cache.keys import text_key
from torchmux.config import config


@pytest.fixture
def folders(tmp_path):
    """Where artifacts come from, and where they go."""
    return tmp_path / "here", tmp_path / "there"


def test_from_one_cache_to_another(folders):
    here, there = folders
    with config.patch(cache_dir=here):
        assert torchmux.save_cache_artifacts() is None
        default_cache().store(text_key("a"), b"code of a")
        default_cache().store(text_key("b"), b"code of b")
        saved, names = torchmux.save_cache_artifacts()
        assert set(names) == {text_key("a"), text_key("b")}
    with config.patch(cache_dir=there):
        assert default_cache().load(text_key("a")) is None
        assert torchmux.load_cache_artifacts(saved) == names
        assert default_cache().load(text_key("a")) == b"code of a"
        assert default_cache().load(text_key("b")) == b"code of b"


def test_without_a_cache(folders):
    with config.patch(cache_dir=folders[0]):
        default_cache().store(text_key("a"), b"code")
        saved, _ = torchmux.save_cache_artifacts()
        with config.patch(cache_enabled=False):
            assert torchmux.save_cache_artifacts() is None
            assert torchmux.load_cache_artifacts(saved) is None


def signed(content):
    """Made up, with a digest that fits."""
    return b"torchmux-artifacts-2\n" + hashlib.sha256(content).digest() + content


def archive(*entries, compression=zipfile.ZIP_DEFLATED):
    target = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(target, "w", compression=compression) as made:
        warnings.simplefilter("ignore")  # of two entries with the same name
        for name, content in entries:
            made.writestr(name, content)
    return signed(target.getvalue())


NAME = "ab" * 32


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (b"nonsense", "not written by save_cache_artifacts of this version"),
        (signed(b"nonsense"), "not written by save_cache_artifacts"),
        (archive(("../../etc/passwd", "x")), "a name that save_cache_artifacts does not use"),
        (archive((NAME, "x"), (NAME, "y")), "Two artifacts have the same name"),
        (archive((NAME, bytes(5 << 20))), "more than config.cache_size_limit"),
        ("text", "Artifacts are bytes, not str"),
    ],
    ids=[
        "nonsense",
        "another_archive",
        "another_name",
        "twice",
        "large",
        "text",
    ],  # an archive holds a time
)
def test_something_else(folders, saved, message):
    limited = config.patch(cache_dir=folders[1], cache_size_limit=1 << 20)
    with limited, pytest.raises(InvalidArtifacts, match=message):
        torchmux.load_cache_artifacts(saved)
    assert not folders[1].exists()


def test_damaged(folders):
    with config.patch(cache_dir=folders[0]):
        default_cache().store(text_key("a"), b"code of a" * 100)
        saved, _ = torchmux.save_cache_artifacts()
    middle = len(saved) // 3
    damaged = saved[:middle] + bytes([saved[middle] ^ 255]) + saved[middle + 1 :]
    with config.patch(cache_dir=folders[1]), pytest.raises(InvalidArtifacts):
        torchmux.load_cache_artifacts(damaged)


@pytest.mark.parametrize("sign", [False, True], ids=["damaged", "made up"])
def test_whatever_the_bytes_are_nothing_else_is_raised(folders, sign):
    with config.patch(cache_dir=folders[0]):
        for name in "abc":
            default_cache().store(text_key(name), name.encode() * 300)
        saved, _ = torchmux.save_cache_artifacts()
    kept = saved[len(signed(b"")) :] if sign else saved
    numbers = random.Random(1)
    outcomes = {"refused": 0, "taken": 0}
    with config.patch(cache_dir=folders[1]):
        for _ in range(500):
            damaged = bytearray(kept)
            for _ in range(4):
                damaged[numbers.randrange(len(damaged))] ^= 1 << numbers.randrange(8)
            try:
                torchmux.load_cache_artifacts(signed(bytes(damaged)) if sign else bytes(damaged))
                outcomes["taken"] += 1
            except InvalidArtifacts:
                outcomes["refused"] += 1
    assert outcomes["refused"] >= (300 if sign else 500), outcomes
