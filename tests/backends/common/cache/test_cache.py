"""The artifact cache: keys, atomic writes, damage, privacy, size, several processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

from torchmux.backends.common.cache import cache as cache_module, keys
from torchmux.backends.common.cache.cache import ArtifactCache, UnsafeCache, default_cache
from torchmux.backends.common.cache.keys import graph_key, text_key
from torchmux.backends.common.cache.versions import sources_digest
from torchmux.config import config


@pytest.fixture
def cache(tmp_path: Path) -> ArtifactCache:
    return ArtifactCache(tmp_path / "artifacts")


KEY = "ab" + "0" * 62


def entry(cache: ArtifactCache, key: str = KEY) -> Path:
    return cache.folder / key[:2] / key[2:]


def test_what_is_stored_is_loaded(cache) -> None:
    assert cache.load(KEY) is None
    cache.store(KEY, b"machine code")
    assert cache.load(KEY) == b"machine code"
    cache.store(KEY, b"")
    assert cache.load(KEY) == b""
    assert cache.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:7], lambda b: b"", lambda b: b[:-1] + b"?"])
def test_a_damaged_entry_is_dropped(cache, damage, caplog) -> None:
    cache.store(KEY, b"machine code")
    entry(cache).write_bytes(damage(entry(cache).read_bytes()))
    assert cache.load(KEY) is None
    assert "damaged" in caplog.text
    assert not entry(cache).exists()
    cache.store(KEY, b"again")
    assert cache.load(KEY) == b"again"


def test_a_folder_open_to_others_is_refused(cache) -> None:
    cache.store(KEY, b"x")
    cache.folder.chmod(0o770)
    with pytest.raises(UnsafeCache, match="Remove the folder, or move it away"):
        cache.load(KEY)
    with pytest.raises(UnsafeCache, match="Remove the folder, or move it away"):
        cache.store(KEY, b"y")


def test_a_folder_of_someone_else_is_refused(cache, monkeypatch) -> None:
    cache.store(KEY, b"x")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UnsafeCache, match="belongs to user"):
        cache.load(KEY)


def test_a_full_disk_costs_only_the_entry(cache, monkeypatch, caplog) -> None:
    def full(source, target, **folders):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.store(KEY, b"x")
    assert "No space left" in caplog.text
    assert cache.load(KEY) is None
    assert list(cache.folder.rglob(".partial-*")) == []


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "artifacts", limit=3 * 1100)
    keys = [f"{i:02d}" + "0" * 62 for i in range(4)]
    for i, key in enumerate(keys[:3]):
        cache.store(key, bytes(1000))
        os.utime(entry(cache, key), (1000 + i, 1000 + i))
    assert cache.load(keys[0]) is not None  # used just now
    cache.store(keys[3], bytes(1000))
    assert [cache.load(k) is not None for k in keys] == [True, False, True, True]


def test_the_folder_is_measured_now_and_then_not_at_every_entry(tmp_path: Path, monkeypatch) -> None:
    cache = ArtifactCache(tmp_path / "artifacts", limit=100_000)
    measured = []
    trim = ArtifactCache._trim
    monkeypatch.setattr(ArtifactCache, "_trim", lambda self: measured.append(trim(self)) or measured[-1])
    for i in range(1000):
        cache.store(f"{i:04d}" + "0" * 60, bytes(164))  # twice as much as the folder may hold
    assert len(measured) < 150
    kept = sum(f.stat().st_size for f in cache.folder.rglob("*") if f.is_file())
    assert 90_000 < kept <= 100_000 * 65 // 64


def test_leftovers_of_crashed_writers_go_after_an_hour(cache, monkeypatch) -> None:
    cache.store(KEY, b"x")
    old, new = (entry(cache).parent / f".partial-{n}" for n in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 4000,) * 2)
    monkeypatch.setattr(cache_module, "_allowance", {})  # as in a new process, which measures the folder
    cache.store("cd" + KEY[2:], b"y")
    assert not old.exists()
    assert new.exists()


def test_two_processes_write_and_read_at_once(cache, run_python) -> None:
    import threading

    code = f"""
from pathlib import Path
from torchmux.backends.common import cache as cache_module
from torchmux.backends.common.cache.cache import ArtifactCache
cache = ArtifactCache(Path({str(cache.folder)!r}))
for i in range(150):
    found = cache.load({KEY!r})
    assert found is None or set(found) in ({{1}}, {{2}}), "a torn entry"
    cache.store({KEY!r}, bytes([WHO]) * 100_000)
print("done")
"""
    said: list[str] = []

    def work(who: int) -> None:
        said.append(run_python(code.replace("WHO", str(who))))

    threads = [threading.Thread(target=work, args=(who,)) for who in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["done\n", "done\n"]


def with_values(function, *shapes):
    gm = symbolic_trace(function)
    for node, shape in zip(gm.graph.nodes, shapes, strict=False):
        if node.op == "placeholder":
            node.meta["val"] = torch.empty(shape)
    return gm


def test_keys_tell_graphs_apart() -> None:
    base = graph_key(with_values(lambda x: torch.sum(x, 0), (2, 3)), "v1")
    assert base == graph_key(with_values(lambda other: torch.sum(other, 0), (2, 3)), "v1"), "names do not count"
    different = [
        graph_key(with_values(lambda x: torch.sum(x, 1), (2, 3)), "v1"),
        graph_key(with_values(lambda x: torch.sum(x, 0), (2, 4)), "v1"),
        graph_key(with_values(lambda x: torch.mean(x, 0), (2, 3)), "v1"),
        graph_key(with_values(lambda x: torch.sum(x, 0), (2, 3)), "v2"),
        graph_key(with_values(lambda x: torch.sum(x, 0), (2, 3)), "v1", "options"),
    ]
    assert len({base, *different}) == 6


def test_keys_tell_the_sources_of_the_backends_apart(monkeypatch, tmp_path) -> None:
    """After a change to a backend, nothing that its old code made is found."""
    gm = with_values(lambda x: torch.sum(x, 0), (2, 3))
    before = graph_key(gm, "v1"), text_key("a")
    monkeypatch.setattr(keys, "sources_digest", lambda folder: f"changed in {folder.name}")
    assert {graph_key(gm, "v1"), text_key("a")}.isdisjoint(before)
    source = tmp_path / "nested" / "backend.py"
    source.parent.mkdir()
    source.write_text("one")
    first = sources_digest.__wrapped__(tmp_path)
    source.write_text("two")
    assert sources_digest.__wrapped__(tmp_path) != first


def test_keys_tell_constants_apart() -> None:
    def keyed(value: float) -> str:
        module = torch.nn.Module()
        module.register_buffer("c", torch.tensor([value]))
        graph = torch.fx.Graph()
        graph.output((graph.call_function(torch.neg, (graph.get_attr("c"),)),))
        return graph_key(torch.fx.GraphModule(module, graph), "")

    assert keyed(1.0) == keyed(1.0) != keyed(2.0)


def test_the_cache_can_be_switched_off(tmp_path: Path) -> None:
    with config.patch(cache_dir=tmp_path):
        assert default_cache().folder == tmp_path / "artifacts"
        with config.patch(cache_enabled=False):
            assert default_cache() is None


# --- what somebody else may have left there ---------------------------------------------------------------------------


def as_link(cache: ArtifactCache, path: Path) -> None:
    elsewhere = cache.folder.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def as_folder(cache: ArtifactCache, path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(cache: ArtifactCache, path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


PLANTED = {
    "a link": as_link,
    "a folder": as_folder,
    "a pipe": as_pipe,
    "open to the group": lambda cache, path: path.chmod(0o660),
    "open to all": lambda cache, path: path.chmod(0o602),
    "of somebody else": lambda cache, path: os.chown(path, 54321, -1),
    "on a shelf of somebody else": lambda cache, path: os.chown(path.parent, 54321, -1),
    "on a shelf that is open": lambda cache, path: path.parent.chmod(0o777),
}


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.mark.parametrize(
    "plant",
    [pytest.param(plant, id=name, marks=[ONLY_ROOT] * ("somebody" in name)) for name, plant in PLANTED.items()],
)
def test_what_is_not_a_file_of_the_users_alone_is_not_read(cache, plant, caplog) -> None:
    cache.store(KEY, b"code")
    plant(cache, entry(cache))
    assert cache.load(KEY) is None
    assert len(caplog.records) == 1


def test_reading_fails_with_one_warning(cache, caplog, monkeypatch) -> None:
    cache.store(KEY, b"code")
    for number in (5, 13, 24, 36, 116):  # EIO, EACCES, EMFILE, ENAMETOOLONG, ESTALE
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", lambda *args, number=number, **more: (_ for _ in ()).throw(OSError(number, "no")))
            assert cache.load(KEY) is None
    assert len(caplog.records) == 1
    assert cache.load(KEY) == b"code"


def test_other_files_in_the_cache_folder_count(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cache_module, "_allowance", {})
    with config.patch(cache_dir=tmp_path, cache_size_limit=5000):
        for name in ("failed", "reproducers", "traces"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "old").write_bytes(bytes(2000))
            os.utime(tmp_path / name / "old", (1000, 1000))
        default_cache().store(KEY, bytes(2500))
        left = [path for path in tmp_path.rglob("old") if path.exists()]
        assert len(left) == 1
        assert default_cache().load(KEY) == bytes(2500)
