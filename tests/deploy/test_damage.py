"""Damaged, altered, foreign and unsigned files: one kind of error, and nothing in them runs."""

from __future__ import annotations

import json
import mmap
import random
import zipfile

import pytest
import torch

import torchmux
from torchmux.deploy import container, machine
from torchmux.deploy.container import MANIFEST, Opened

QUICK, ALL = 60, 500


def damaged(whole: bytes, seed: int) -> bytes:
    """The content of a file after an accident, or the work of somebody who does not know the key."""
    draw = random.Random(seed)
    content = bytearray(whole)
    kind = seed % 8
    at = draw.randrange(len(content))
    if kind == 0:
        content[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        del content[at:]
    elif kind == 2:
        del content[:at]
    elif kind == 3:
        content[at:at] = draw.randbytes(draw.randrange(1, 50))
    elif kind == 4:
        length = min(draw.randrange(1, 512), len(content) - at)
        content[at : at + length] = bytes(length)
    elif kind == 5:
        content += draw.randbytes(draw.randrange(1, 200))
    elif kind == 6:
        other = draw.randrange(len(content))
        content[at], content[other] = content[other], content[at] ^ 1
    else:
        content = bytearray(draw.randbytes(draw.randrange(0, len(content))))
    return bytes(content)


def check_damages(path, count, monkeypatch):
    assert len(torchmux.load(path).entries) == 1  # and all is imported
    whole = path.read_bytes()
    monkeypatch.setattr(Opened, "json", lambda *args: pytest.fail("something of a damaged file is read"))
    monkeypatch.setattr("builtins.exec", lambda *args: pytest.fail("something of a damaged file runs"))
    for seed in range(count):
        content = damaged(whole, seed)
        if content == whole:
            continue
        path.write_bytes(content)
        with pytest.raises(torchmux.LoadRefused, match=r"nothing in it was run\. |is signed|is not signed|has format"):
            torchmux.load(path)


@pytest.mark.parametrize("backend", ["eager"])
def test_damaged_files_are_refused(backend, saved, monkeypatch):
    check_damages(saved(backend)[0], QUICK, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "onnxrt", "openvino", "tvm", "aot_eager", "eager"])
def test_many_damaged_files_are_refused(backend, saved, monkeypatch):
    check_damages(saved(backend)[0], ALL, monkeypatch)


def test_keys(saved, net):
    path, _ = saved("eager", key="secret")
    assert len(torchmux.load(path, key=b"secret").entries) == 1
    with pytest.raises(torchmux.LoadRefused, match="is signed. Call load.. with the key"):
        torchmux.load(path)
    with pytest.raises(torchmux.LoadRefused, match="signed with another key"):
        torchmux.load(path, key="other")
    unsigned, _ = saved("eager")
    with pytest.raises(torchmux.LoadRefused, match="is not signed"):
        torchmux.load(unsigned, key="secret")
    with pytest.raises(ValueError, match="empty"):
        torchmux.load(unsigned, key="")


def rewritten(path, change):
    """The file with its JSON changed and a new digest, as somebody who knows the format would write it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    container.write(path, members, None)


def change_manifest(path, **needs):
    def change(members):
        manifest = json.loads(members[MANIFEST])
        for name, value in needs.items():
            manifest["needs"][name] = value
        members[MANIFEST] = json.dumps(manifest).encode()

    rewritten(path, change)


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ({"machine": "riscv64"}, "saved for Linux on riscv64.*recompile=True"),
        ({"system": "Plan9"}, "saved for Plan9"),
        ({"versions": {"torch": "1.0"}}, r"saved with torch 1.0, which is version .* Install torch==1.0"),
        ({"versions": {"no-such-runtime": "3"}}, "no-such-runtime 3, which is not installed"),
        ({"instructions": ["avx4096"]}, "processor with avx4096, which this one lacks"),
    ],
)
def test_other_machines_and_versions(needs, message, saved):
    path, _ = saved("eager")
    change_manifest(path, **needs)
    with pytest.raises(torchmux.LoadRefused, match=message):
        torchmux.load(path)


def test_other_formats(saved, monkeypatch):
    path, _ = saved("eager")
    monkeypatch.setattr(container, "FORMAT", container.FORMAT + 1)
    with pytest.raises(torchmux.LoadRefused, match="has format 1; this version of torchmux reads format 2"):
        torchmux.load(path)


EVIL = [
    ("after", ["__import__('os').system('false')"]),
    ("after", ["().__class__.__base__.__subclasses__()"]),
    ("after", ["import os"]),
    ("result", "out0 if (lambda: 1)() else 2"),
    ("inputs", ["(yield)"]),
]


@pytest.mark.parametrize(("field", "value"), EVIL)
def test_python_that_torchmux_does_not_write(field, value, saved):
    def change(members):
        entry = json.loads(members["entries/0.json"])
        entry["frame"][field] = value
        members["entries/0.json"] = json.dumps(entry).encode()

    path, _ = saved("eager")
    rewritten(path, change)
    with pytest.raises(torchmux.LoadRefused):
        torchmux.load(path)


@pytest.mark.parametrize(
    "function", [["torch", "torch.load"], ["torch", "os.system"], ["aten", "aten.from_file.default"], ["python", "id"]]
)
def test_functions_that_are_none_of_tensors(function, saved):
    def change(members):
        entry = json.loads(members["entries/0.json"])
        step = next(step for step in entry["graph"]["torch"] if step[0] == "function")
        step[1] = function
        members["entries/0.json"] = json.dumps(entry).encode()

    path, _ = saved("eager")
    rewritten(path, change)
    with pytest.raises(torchmux.LoadRefused, match="which is no function of tensors"):
        torchmux.load(path)


def test_properties_that_are_none_of_tensors(saved):
    def change(members):
        entry = json.loads(members["entries/0.json"])
        steps = entry["graph"]["torch"]
        at = next(at for at, step in enumerate(steps) if step[0] == "function")
        steps[at] = ["property", "__class__", ["node", 0]]
        members["entries/0.json"] = json.dumps(entry).encode()

    path, _ = saved("eager")
    rewritten(path, change)
    with pytest.raises(torchmux.LoadRefused, match="a step property"):
        torchmux.load(path)


def test_random_json_is_refused_with_one_error(saved):
    """Whatever stands in the place of a value: the file loads, or it is refused."""
    path, _ = saved("eager")
    whole = path.read_bytes()
    draw = random.Random(0)
    for _ in range(40):
        path.write_bytes(whole)

        def change(members):
            name = draw.choice([MANIFEST, "entries/0.json"])
            told = json.loads(members[name])
            places: list = []

            def visit(value):
                for at in value if isinstance(value, dict) else range(len(value)):
                    places.append((value, at))
                    if isinstance(value[at], (dict, list)):
                        visit(value[at])

            visit(told)
            holder, at = draw.choice(places)
            holder[at] = draw.choice([None, 7, -1, "text", [], ["class", "os", "system"], {}, [[1]], 1.5])
            members[name] = json.dumps(told).encode()

        rewritten(path, change)
        try:
            torchmux.load(path)
        except torchmux.LoadRefused:
            continue


def bomb(archive, name, content):
    archive.writestr(zipfile.ZipInfo(name), bytes(1 << 24), compress_type=zipfile.ZIP_DEFLATED)


def link(archive, name, content):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = 0o120777 << 16
    archive.writestr(entry, "/etc/passwd")


def twice(archive, name, content):
    archive.writestr(zipfile.ZipInfo(name), content)
    archive.writestr(zipfile.ZipInfo(name), content)


def elsewhere(archive, name, content):
    archive.writestr(zipfile.ZipInfo(f"../../{name}"), content)
    archive.writestr(zipfile.ZipInfo(f"/{name}"), content)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("forge", [bomb, link, twice, elsewhere])
@pytest.mark.parametrize("member", [MANIFEST, "entries/0.json", "weights.safetensors"])
def test_zips_that_torchmux_does_not_write(forge, member, saved, tmp_path):
    """Nothing is unpacked, nowhere; a file has its members once, as they are."""
    path, _ = saved("eager")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if name == member:
                forge(archive, name, content)
            else:
                archive.writestr(zipfile.ZipInfo(name), content)
        archive.comment = f"torchmux {container.FORMAT} sha256 {'0' * 64}".encode()
    whole = path.read_bytes()[:-64]
    path.write_bytes(whole + container._digest(memoryview(whole), None).encode())
    before = sorted(tmp_path.parent.rglob("*"))
    with pytest.raises(torchmux.LoadRefused):
        torchmux.load(path)
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_members_in_the_place_of_others_are_refused(saved):
    path, _ = saved("eager")

    def swap(members):
        members[MANIFEST], members["entries/0.json"] = members["entries/0.json"], members[MANIFEST]

    rewritten(path, swap)
    with pytest.raises(torchmux.LoadRefused):
        torchmux.load(path)


def test_weights_can_be_read_with_safetensors(saved, net, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    path, _ = saved("eager")
    with zipfile.ZipFile(path) as archive:
        content = archive.read("weights.safetensors")
    found = safetensors.load(content)
    assert torch.equal(found["inner.weight"], net.inner.weight)


def test_instructions_are_known():
    assert machine.instructions() <= frozenset(machine.processor().split())


@pytest.mark.parametrize("slow", [False, True])
def test_memory_is_in_large_pages_only_while_they_are_quick(slow, tmp_path, monkeypatch):
    content, at_once, seconds, advice = random.Random(0).randbytes((1 << 20) + 7), 1 << 16, [0.0], []
    tmp_path.joinpath("file").write_bytes(content)
    monkeypatch.setattr(container, "_AT_ONCE", at_once)

    def clock() -> float:
        seconds[0] += 1 + (slow and len(advice) == 1)
        return seconds[0]

    def advise(memory, name, start):
        advice.append((name, start))
        return True

    monkeypatch.setattr(container.time, "thread_time", clock)
    monkeypatch.setattr(container, "_advise", advise)
    with mmap.mmap(-1, len(content) + 1) as memory, open(tmp_path / "file", "rb") as file:
        seen: list[int] = []
        assert container._read(file, memory, seen.append) == seen[-1] == len(content)
        assert memory[:-1] == content
    large, small = ("MADV_HUGEPAGE", at_once), ("MADV_NOHUGEPAGE", 2 * at_once)
    assert advice == ([large, small] if slow else [large])
