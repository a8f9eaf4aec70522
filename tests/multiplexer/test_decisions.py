"""Decisions as data: read and written, compared, pinned, exported, imported, and what a hostile file can do."""

from __future__ import annotations

import dataclasses
import json
import threading

import pytest
from decided import FINGERPRINT, decision

from torchmux.config import config
from torchmux.multiplexer import decisions
from torchmux.multiplexer.decisions import portable, store
from torchmux.multiplexer.decisions.typed import Invalid


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.patch(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def test_json_and_back():
    made = decision()
    made.rows[0].spread = float("nan")
    again = decisions.Decision.from_json(made.to_json())
    assert again.rows[0].spread is None
    assert dataclasses.replace(again, rows=[]) == dataclasses.replace(made, rows=[])
    assert again.rows[1:] == made.rows[1:]
    assert again.key == made.key == FINGERPRINT.key
    assert "NaN" not in made.to_json()


def test_the_key_is_of_all_but_what_is_told_to_readers():
    changed = [
        dataclasses.replace(FINGERPRINT, **{name: value})
        for name, value in {
            "graph": "1" * 64, "nodes": 6, "inputs": [], "bucket": "9..16", "phase": "training", "strict": "True",
            "asked": {}, "machine": {}, "software": {}, "settings": {}, "candidates": {},
        }.items()
    ]  # fmt: skip
    assert {f.name for f in dataclasses.fields(FINGERPRINT)} - {"about"} == set(changed[0].to_data())
    assert len({FINGERPRINT.key, *(each.key for each in changed)}) == 12
    assert dataclasses.replace(FINGERPRINT, about={}).key == FINGERPRINT.key
    same_graph = {each.key[:8] for each in changed[1:]}
    assert same_graph == {FINGERPRINT.key[:8]} != {changed[0].key[:8]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"graph": "1" * 64}, "it is for another graph"),
        ({"bucket": "9..16"}, "it is for sizes 9..16, and these are as they are"),
        ({"phase": "training"}, "it is for training, and this is inference"),
        (
            {"machine": {**FINGERPRINT.machine, "threads": "2"}},
            "it was measured with threads=2, and this process has threads=8",
        ),
        (
            {"machine": {**FINGERPRINT.machine, "processor": "Loom"}},
            "it was measured on Loom, and this machine has Abacus 5",
        ),
        (
            {"software": {**FINGERPRINT.software, "torch": "2.12.0"}},
            "it was measured with torch 2.12.0, and this process has 2.13.0",
        ),
        (
            {"candidates": {**FINGERPRINT.candidates, "openvino": decisions.Backend("o0", [])}},
            "it was measured with openvino o0, and here is o1",
        ),
        ({"candidates": {"native": FINGERPRINT.candidates["native"]}}, "openvino is a candidate here, and was not"),
        (
            {"candidates": {**FINGERPRINT.candidates, "tvm": decisions.Backend("t", [])}},
            "tvm was measured, and is no candidate here",
        ),
        ({"asked": {"objective": "memory"}}, "the option objective was memory, and is latency"),
        ({"settings": {"default_dtype": "x"}}, "torch's setting default_dtype was x, and is torch.float32"),
    ],
)
def test_differences_in_words(changes, words):
    assert decisions.differences(FINGERPRINT, FINGERPRINT) == []
    (said,) = decisions.differences(FINGERPRINT, dataclasses.replace(FINGERPRINT, **changes))
    assert said.startswith(words)


def test_kept_found_and_forgotten():
    made = decision()
    decisions.keep(FINGERPRINT, made)
    assert decisions.load(FINGERPRINT) == made
    other = dataclasses.replace(FINGERPRINT, machine={**FINGERPRINT.machine, "threads": "2"})
    assert decisions.load(other) is None
    (why,) = decisions.unused(other)
    assert f"the decision {made.key[:12]}" in why
    assert "is not used: it was measured with threads=8, and this process has threads=2" in why
    assert decisions.unused(dataclasses.replace(other, bucket="1..8")) == []  # another question
    assert decisions.find(made.key[:10]) == made
    decisions.forget(made)
    assert decisions.load(FINGERPRINT) is None
    with pytest.raises(decisions.UnknownDecision, match="No decision has a key"):
        decisions.find(made.key)


def test_damage_is_a_miss(folder, caplog):
    made = decision()
    decisions.keep(FINGERPRINT, made)
    (file,) = [path for path in (folder / "decisions").rglob("*") if path.is_file()]
    content = file.read_bytes()
    for broken in (content[:-20], b"", content[:60] + b"x" + content[61:]):
        file.write_bytes(broken)
        assert decisions.load(FINGERPRINT) is None
        assert list(decisions.entries()) == []
        decisions.keep(FINGERPRINT, made)
    assert decisions.load(FINGERPRINT) == made
    assert "is damaged" in caplog.text


def test_many_writers_lose_nothing():
    """Threads write the same and different decisions, and pin them, while others read."""
    made = [decision(bucket=str(number)) for number in range(4)]

    def work(number: int) -> None:
        for _ in range(4):
            each = made[number % 4]
            store.write(each)
            store.pin(each, "eager")
            assert store.find(each.key).pinned == "eager"
            list(store.entries())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.key for each in store.entries()) == sorted(each.key for each in made)
    assert all(each.pinned == "eager" for each in store.entries())


def test_pins():
    made = decision()
    decisions.keep(FINGERPRINT, made)
    assert made.ranking[0].candidate == "native"
    decisions.pin(made, "eager")
    found = decisions.load(FINGERPRINT)
    assert [row.candidate for row in found.ranking] == ["eager", "native", "native(keep_scratch=True)"]
    assert found.explanation == "it is pinned; the measurement chose native: it is the quickest beyond doubt"
    decisions.keep(FINGERPRINT, decision())  # a new measurement
    assert decisions.load(FINGERPRINT).pinned == "eager"
    assert decisions.pin(made, "native(keep_scratch=True)").ranking[0].options == {"keep_scratch": True}
    decisions.unpin(made)
    assert decisions.load(FINGERPRINT).ranking[0].candidate == "native"
    with pytest.raises(decisions.UnknownDecision, match=r"'openvino'. openvino is wrong: .*Its candidates"):
        decisions.pin(made, "openvino")
    with pytest.raises(decisions.UnknownDecision, match="Did you mean 'native'"):
        decisions.pin(made, "natve")


def test_files_are_equal_for_equal_decisions():
    made = [decision(bucket=str(number)) for number in range(3)]
    text = decisions.export_decisions(made)
    assert text == decisions.export_decisions(reversed(made))
    assert max(map(len, text.splitlines())) < 200
    changed = decision(bucket="1")
    changed.rows[0].milliseconds = 1.5
    again = decisions.export_decisions([made[0], changed, made[2]])
    lines = [pair for pair in zip(text.splitlines(), again.splitlines(), strict=True) if pair[0] != pair[1]]
    assert len(lines) == 2  # the number, and the digest


def test_import_says_what_holds_here(folder, tmp_path):
    made = decision()
    made.pinned = "eager"
    text = decisions.export_decisions([made])
    (found,) = decisions.import_decisions(text)
    assert (found.key, found.state) == (made.key, "inactive")
    assert any(why.startswith("it was measured on Abacus 5, and this machine has") for why in found.reasons)
    assert any(why.startswith("it was measured with native n1, and here is") for why in found.reasons)
    kept = decisions.load(FINGERPRINT)
    assert (kept.pinned, kept.source) == ("eager", "an imported decision")


def tampered(change) -> str:
    """A file whose decision was changed, with a digest that fits; its key does not follow."""
    told = json.loads(decisions.export_decisions([decision()]))
    (entry,) = told["decisions"].values()
    change(entry["decision"])
    entry["digest"] = portable._digest(entry["decision"])
    return json.dumps(told)


HOSTILE = {
    "a stranger": (lambda d: d["rows"][0].update(backend="evil:module"), "it names evil:module, which is no candidate"),
    "a stranger pinned": (lambda d: d["rows"][0].update(pins={"3": "evil"}), "it names evil, which is no candidate"),
    "no node": (
        lambda d: d["rows"][0].update(pins={"5": "native"}),
        "it pins a node that the graph does not have",
    ),
    "no number": (lambda d: d["rows"][0].update(pins={"-1": "native"}), "it pins a node that the graph does not have"),
    "a chain with a stranger": (lambda d: d["rows"][0].update(backend="native+evil"), "it names evil"),
    "options that nobody tries": (
        lambda d: d["rows"][0].update(options={"freeze": True}),
        "it has options for native that are not tried",
    ),
    "a stranger in a chain": (
        lambda d: d["rows"][0].update(backend="native+evil"),
        "it names evil, which is no candidate",
    ),
    "options of a chain that nobody tries": (
        lambda d: d["rows"][0].update(backend="openvino+native", options={"native": {"freeze": True}}),
        "it has options for native that are not tried",
    ),
    "options of a stranger": (
        lambda d: d["rows"][0].update(backend="openvino+native", options={"evil": {}}),
        "it has options for more backends than openvino+native",
    ),
    "a number": (lambda d: d["rows"][0].update(backend=3), r"decision.rows[0].backend is 3 (int), not str"),
    "a negative time": (lambda d: d["rows"][0].update(milliseconds=-1.0), "a number is negative"),
    "no rows": (lambda d: d.update(rows=None), "decision.rows is None"),
    "a field": (lambda d: d.update(load="os:system"), "decision has an unknown field 'load'"),
    "a field of a row": (lambda d: d["rows"][0].update(load="x"), "decision.rows[0] has an unknown field 'load'"),
    "another machine": (lambda d: d["fingerprint"].update(machine={}), "its fingerprint has another key"),
    "twice the same": (lambda d: d["rows"].append(d["rows"][0]), "two rows have the same candidate"),
    "another version": (lambda d: d.update(format=99), "it has format 99"),
    "a pin": (lambda d: d.update(pinned="openvino"), "it is pinned to openvino, which is no candidate that may run"),
}


@pytest.mark.parametrize(("change", "words"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused(change, words):
    (found,) = decisions.import_decisions(tampered(change))
    assert found.state == "refused"
    assert found.reasons[0].startswith(words)
    assert list(decisions.entries()) == []


def test_options_that_the_backend_does_not_have_are_refused():
    made = decision(candidates={"native": decisions.Backend("n1", [{"shell": "rm"}])})
    made.rows = made.rows[2:3]
    (found,) = decisions.import_decisions(decisions.export_decisions([made]))
    assert found.state == "refused"
    assert "native has no option 'shell'" in found.reasons[0]


def test_a_changed_file_is_refused():
    text = decisions.export_decisions([decision()]).replace('"milliseconds": 1.01', '"milliseconds": 0.01')
    (found,) = decisions.import_decisions(text)
    assert (found.state, found.reasons) == ("refused", ["it is damaged, or was changed: its digest differs"])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"decisions": 3}', "[" * 100_000, b"\xff\xfe"])
def test_what_is_no_file_of_decisions(text):
    with pytest.raises(decisions.InvalidDecisions, match="no file of decisions"):
        decisions.import_decisions(text)


def test_a_file_of_another_version():
    with pytest.raises(decisions.InvalidDecisions, match="has the format 'torchmux decisions 1'"):
        decisions.import_decisions('{"format": "torchmux decisions 1", "decisions": {}}')


def test_texts_cannot_reach_the_terminal():
    made = decision()
    made.rows[0].reason = "\x1b[2J\x07gone\x9b"
    assert decisions.Decision.from_json(made.to_json()).rows[0].reason == "\\x1b[2J\\x07gone\\x9b"


def test_a_decision_without_its_fields():
    with pytest.raises(Invalid, match="decision has no field 'backend'"):
        decisions.Decision.from_data({"format": 2})
