"""Decisions that a fleet shares: written once, read by all, and left alone where the address cannot be used."""

from __future__ import annotations

import json
import logging
import threading
import time

import pytest
from decided import FINGERPRINT, decision

from torchmux.backends.common.cache import addresses
from torchmux.config import config
from torchmux.multiplexer import decisions
from torchmux.multiplexer.decisions import shared, store

KEY = FINGERPRINT.key


@pytest.fixture(params=["folder", "memory"])
def address(request, tmp_path, monkeypatch):
    """An address that is shared; the first process of the fleet has its own folder."""
    monkeypatch.setattr(shared, "_shares", {})
    monkeypatch.setattr(store, "POLL_S", 0.01)
    if request.param == "memory":
        pytest.importorskip("fsspec")
        where = f"memory://{tmp_path.name}/decisions"
    else:
        where = str(tmp_path / "shared")
    with config.patch(cache_dir=tmp_path / "first", decisions=where):
        yield where


def another_machine(tmp_path, monkeypatch, name: str = "second"):
    """What another process of the fleet has: a folder and a claim of its own."""
    monkeypatch.setattr(shared, "_shares", {})
    return config.patch(cache_dir=tmp_path / name)


def names(address: str) -> list[str]:
    files = addresses.files_at(address)
    if isinstance(files, addresses.Folder):
        return sorted(path.name for path in files.path.iterdir())
    return sorted(path.rpartition("/")[2] for path in files.system.ls(files.path, detail=False))


def test_the_next_machine_finds_it(address, tmp_path, monkeypatch):
    made = decisions.once(FINGERPRINT, decision, 60.0)
    assert names(address) == [f"{KEY}.json"]  # and no claim is left
    with another_machine(tmp_path, monkeypatch):
        found = decisions.load(FINGERPRINT)
        assert found.rows == made.rows
        assert found.source == "a shared decision"
        config.decisions = ""
        assert decisions.load(FINGERPRINT).rows == made.rows  # it is kept here as well
        config.decisions = address


def test_one_of_several_measures(address, tmp_path, monkeypatch):
    """Eight processes, each a thread with a share of its own, want the same decision at once."""
    measured, found = [], []
    shares = {}
    monkeypatch.setattr(shared, "current", lambda: shares.setdefault(threading.get_ident(), shared.Share(address)))

    def measure():
        measured.append(threading.get_ident())
        time.sleep(0.2)
        return decision()

    threads = [
        threading.Thread(target=lambda: found.append(decisions.once(FINGERPRINT, measure, 60.0))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.key for each in found] == [KEY] * 8
    # A folder lets one of them measure.  Other systems may let two that claim at the same time.
    assert len(measured) == 1 if isinstance(addresses.files_at(address), addresses.Folder) else len(measured) < 8


def test_a_claim_of_the_dead_ends(address):
    files = addresses.files_at(address)
    claim = {"by": "someone", "until": time.time() + 1.0}
    files.create(f"{KEY}.claim", json.dumps(claim).encode())
    decisions.once(FINGERPRINT, decision, 60.0)
    assert time.time() >= claim["until"]
    assert names(address) == [f"{KEY}.json"]


def test_nobody_waits_for_ever(address, monkeypatch):
    monkeypatch.setattr(shared, "SLACK_S", 0.3)
    claim = {"by": "someone", "until": time.time() + 1e9}
    addresses.files_at(address).create(f"{KEY}.claim", json.dumps(claim).encode())
    assert decisions.once(FINGERPRINT, decision, 0.1).key == KEY
    assert names(address) == [f"{KEY}.claim", f"{KEY}.json"]  # it is not ours to remove


def test_a_claim_that_cannot_be_read_is_none(address):
    addresses.files_at(address).create(f"{KEY}.claim", b"\xff{")
    assert decisions.once(FINGERPRINT, decision, 60.0).key == KEY


def test_a_measurement_that_fails_gives_its_claim_back(address):
    def fails():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decisions.once(FINGERPRINT, fails, 60.0)
    assert names(address) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": "torchmux decisions 2", "decisions": {}}', b"\x00" * 99])
def test_damaged_files_are_made_again(address, caplog, content):
    addresses.files_at(address).write(f"{KEY}.json", content)
    assert decisions.load(FINGERPRINT) is None
    assert f"the shared decision {KEY}" in caplog.text
    decisions.once(FINGERPRINT, decision, 60.0)
    assert shared.current().get(KEY) is not None


def test_a_stranger_under_our_key_is_refused(address, caplog):
    """Whoever can write to the address chooses among the candidates, and no more."""
    hostile = decision()
    hostile.fingerprint = FINGERPRINT
    hostile.rows[0].options = {"freeze": True}
    shared.current().put(KEY, hostile)
    assert decisions.load(FINGERPRINT) is None
    assert "it has options for native that are not tried" in caplog.text
    other = decision(bucket="1..8")
    shared.current().put(KEY, other)
    assert decisions.load(FINGERPRINT) is None
    assert "it has another key" in caplog.text


@pytest.mark.parametrize("where", ["/proc/no/such/folder", "nosuchprotocol://host/path", "s3://"])
def test_an_address_that_cannot_be_used_is_told_once(where, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(shared, "_shares", {})
    monkeypatch.setattr(shared, "PAUSE_S", 0.0)
    with config.patch(cache_dir=tmp_path / "cache", decisions=where), caplog.at_level(logging.WARNING):
        assert decisions.once(FINGERPRINT, decision, 60.0).key == KEY
        assert decisions.load(FINGERPRINT) is not None
        assert decisions.load(decision(bucket="1..8").fingerprint) is None
    told = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(f"config.decisions={where!r} cannot be used; decisions stay on this machine: ")


def test_a_file_system_that_cannot_create(address, monkeypatch):
    """It overwrites instead; who reads its own claim afterwards has it."""
    files = addresses.files_at(address)
    if isinstance(files, addresses.Folder):

        def refuse(*paths):
            raise PermissionError("no links here")

        monkeypatch.setattr("os.link", refuse)
    else:
        real = type(files.system).pipe_file

        def pipe_file(self, path, value):
            return real(self, path, value)

        monkeypatch.setattr(type(files.system), "pipe_file", pipe_file)
    assert files.create("name", b"one")
    assert not files.create("name", b"two")
    assert files.read("name") == b"one"


def test_the_address_of_a_folder(tmp_path):
    (folder,) = {type(addresses.files_at(f"{head}{tmp_path}/x")) for head in ("", "file://")}
    assert folder is addresses.Folder
    assert (tmp_path / "x").is_dir()


def test_fsspec_is_asked_for_by_name(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(Exception, match=r"memory://x needs fsspec.*torchmux\[fsspec\]"):
        addresses.files_at("memory://x")
