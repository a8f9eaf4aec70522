"""``save_cache_artifacts`` and ``load_cache_artifacts``."""

from __future__ import annotations

import io
import zipfile

import pytest

import torchmux
from torchmux.backends.common.cache.artifacts import InvalidArtifacts
from torchmux.backends.common.cache.cache import default_cache, text_key
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


def archive(comment, **entries):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as made:
        made.comment = comment
        for name, content in entries.items():
            made.writestr(name, content)
    return target.getvalue()


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (b"nonsense", "not written by save_cache_artifacts"),
        (archive(b"something else"), "an archive that save_cache_artifacts did not write"),
        (
            archive(b"torchmux-artifacts-1", **{"../../etc/passwd": "x"}),
            "a name that save_cache_artifacts does not use",
        ),
    ],
    ids=["nonsense", "another_archive", "another_name"],  # an archive holds the time at which it is made
)
def test_something_else(folders, saved, message):
    with config.patch(cache_dir=folders[1]), pytest.raises(InvalidArtifacts, match=message):
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
