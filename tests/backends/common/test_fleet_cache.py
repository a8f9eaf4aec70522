"""The artifact cache at an address that machines share: signed, read through, and safe for several writers."""

from __future__ import annotations

import logging
import threading

import pytest
import torch

import torchmux
from torchmux.backends.common.cache import fleet
from torchmux.backends.common.cache.addresses import files_at
from torchmux.backends.common.cache.artifacts import save_cache_artifacts
from torchmux.backends.common.cache.cache import ArtifactCache, default_cache
from torchmux.config import config

KEY = "ab" * 32


@pytest.fixture
def s3(monkeypatch, tmp_path):
    """moto's server on this machine, with an empty bucket."""
    boto3, server = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    s3fs.S3FileSystem.clear_instance_cache()  # they remember where the server of an earlier test was
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    started = server.ThreadedMotoServer(port=0)
    started.start()
    host, port = started.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="artifacts")
    yield f"s3://artifacts/{tmp_path.name}"
    started.stop()


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def address(request, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "_addresses", {})
    monkeypatch.setenv(fleet.KEY_VARIABLE, "of the fleet")
    if request.param == "memory":
        pytest.importorskip("fsspec")
        where = f"memory://{tmp_path.name}/artifacts"
    else:
        where = request.getfixturevalue("s3") if request.param == "s3" else str(tmp_path / "shared")
    with config.patch(cache=where):
        yield where


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Another machine of the fleet: a folder of its own."""

    def start(name: str):
        monkeypatch.setattr(fleet, "_addresses", {})
        return config.patch(cache_dir=tmp_path / name)

    return start


def test_what_one_machine_compiles_the_next_one_loads(address, machine):
    with machine("first"):
        default_cache().store(KEY, b"code")
    with machine("second"):
        assert default_cache().load(KEY) == b"code"
        content, names = save_cache_artifacts()  # what this run has used
        assert names == [KEY] and content
        with config.patch(cache=""):
            assert default_cache().load(KEY) == b"code"  # it is in the folder now


def test_what_is_not_signed_with_the_key_is_not_used(address, machine, monkeypatch, caplog):
    with machine("first"):
        default_cache().store(KEY, b"code")
    files = files_at(address, 1 << 20)
    content = files.read(KEY)
    other = "cd" * 32
    files.write(other, content)  # an artifact under another name
    with machine("second"):
        assert default_cache().load(other) is None
    for damaged in (content[:-1], content + b"x", b"code", b"", ArtifactCache.__doc__.encode()):
        files.write(KEY, damaged)
        with machine("second"):
            assert default_cache().load(KEY) is None
    files.write(KEY, content)
    monkeypatch.setenv(fleet.KEY_VARIABLE, "of someone else")
    with machine("second"):
        assert default_cache().load(KEY) is None
    assert "not signed with the key" in caplog.text
    monkeypatch.delenv(fleet.KEY_VARIABLE)
    with machine("second"):
        assert default_cache().load(KEY) is None
        default_cache().store(other, b"code")
    assert "Set TORCHMUX_CACHE_KEY to a secret" in caplog.text
    assert files.read(other) == content


def test_many_write_at_once(address, machine):
    with machine("first"):
        caches = [default_cache() for _ in range(8)]
        payload = bytes(range(256)) * 4096
        writers = [threading.Thread(target=cache.store, args=(KEY, payload)) for cache in caches]
        for writer in writers:
            writer.start()
        with machine("reader"):
            for _ in range(20):
                assert default_cache().load(KEY) in (None, payload)
                default_cache().clear()
        for writer in writers:
            writer.join()
    with machine("second"):
        assert default_cache().load(KEY) == payload


def test_an_address_that_cannot_be_used_costs_one_warning(machine, monkeypatch, caplog):
    monkeypatch.setenv(fleet.KEY_VARIABLE, "of the fleet")
    with config.patch(cache="nonsense://nowhere"), machine("first"), caplog.at_level(logging.WARNING):
        for _ in range(3):
            default_cache().store(KEY, b"code")
            assert default_cache().load(KEY) == b"code"
            assert default_cache().load("cd" * 32) is None
    assert caplog.text.count("cannot be used, only the folder of this machine") == 1


def test_an_address_that_keeps_failing_is_asked_ever_more_rarely(machine, monkeypatch):
    monkeypatch.setenv(fleet.KEY_VARIABLE, "of the fleet")
    now, asked = [1000.0], []
    monkeypatch.setattr(fleet.time, "monotonic", lambda: now[0])

    class Files:
        def read(self, name):
            asked.append(now[0] - 1000)
            if len(asked) != 4:
                raise OSError("gone")

    monkeypatch.setattr(fleet, "files_at", lambda *args: Files())
    with config.patch(cache="memory://x"), machine("first"):
        for _ in range(900):
            assert default_cache().load(KEY) is None
            now[0] += 1
    assert asked[:6] == [0, 60, 180, 420, 421, 481]


@pytest.mark.slow
def test_a_second_machine_compiles_nothing(address, machine):
    def program(x):
        return torch.tanh(x) * 2 + x

    def run():
        compiled = torchmux.compile(program, backend="native")
        with torch.no_grad():
            torch.testing.assert_close(compiled(torch.ones(7)), program(torch.ones(7)))
        (graph,) = torchmux.report(compiled).graphs
        torchmux.reset()
        return graph.report.cache_hits

    with machine("first"):
        assert run() == 0
    with machine("second"):
        assert run() == 1
