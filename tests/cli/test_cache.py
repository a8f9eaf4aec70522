"""``torchmux cache``: what it says, what it does, how it ends."""

from __future__ import annotations

import json

import pytest

from torchmux.backends.common.cache.cache import default_cache
from torchmux.cli.main import main
from torchmux.config import config

KEYS = ["ab" * 32, "cd" * 32]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.patch(cache_dir=tmp_path / "cache"):
        for key in KEYS:
            default_cache().store(key, bytes(1000))
        (tmp_path / "cache" / "failed").mkdir()
        (tmp_path / "cache" / "failed" / "source.cpp").write_text("int x;")
        yield tmp_path / "cache"


def said(capsys, *arguments: str) -> dict:
    assert main(["cache", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_info(capsys, folder):
    told = said(capsys, "info")
    assert (told["artifacts"], told["other_files"], told["other_bytes"], told["safe"]) == (2, 1, 6, True)
    assert 2000 < told["bytes"] < 2200
    assert main(["cache", "info"]) == 0
    assert str(folder / "artifacts") in capsys.readouterr().out


def test_a_folder_that_is_open(capsys, folder):
    (folder / "artifacts").chmod(0o755)
    assert main(["cache", "info"]) == 1
    assert "remove or move the folder" in capsys.readouterr().out
    assert main(["cache", "export", str(folder.parent / "file")]) == 1
    assert "is open to other users" in capsys.readouterr().err


def test_an_empty_cache(capsys, tmp_path):
    with config.patch(cache_dir=tmp_path / "none"):
        assert said(capsys, "info")["artifacts"] == 0
        assert said(capsys, "clear")["removed_files"] == 0
        assert main(["cache", "export", str(tmp_path / "file")]) == 2
        assert "there are no artifacts" in capsys.readouterr().err
    assert not (tmp_path / "file").exists()


def test_clear(capsys, folder):
    assert said(capsys, "clear")["removed_files"] == 3
    assert said(capsys, "info")["artifacts"] == 0
    assert not (folder / "failed").exists()


def test_export_and_import(capsys, tmp_path):
    file = str(tmp_path / "file")
    assert said(capsys, "export", file)["artifacts"] == 2
    with config.patch(cache_dir=tmp_path / "there"):
        assert said(capsys, "import", file)["artifacts"] == 2
        assert default_cache().load(KEYS[1]) == bytes(1000)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["import", "absent"], 2, "cannot import the cache"),
        (["import", __file__], 1, "were not written by save_cache_artifacts"),
        (["export", "/no/such/folder/file"], 2, "there is no folder /no/such/folder"),
        (["export", "/"], 2, "is a folder"),
    ],
)
def test_files_that_are_not_what_they_should_be(capsys, arguments, status, message):
    assert main(["cache", *arguments]) == status
    assert message in capsys.readouterr().err


def test_without_a_cache(capsys):
    with config.patch(cache_enabled=False):
        assert main(["cache", "info"]) == 1
    assert "caching is off" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["cache"], ["cache", "nonsense"], ["cache", "export"]])
def test_misuse(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2


def test_it_needs_no_torch(run_python, tmp_path):
    code = (
        "import sys\nfrom torchmux.cli.main import main\nassert main(['cache', 'info']) == 0\n"
        f"assert main(['cache', 'export', {str(tmp_path / 'file')!r}]) in (0, 2)\n"
        "print('torch' in sys.modules)"
    )
    assert run_python(code).splitlines()[-1] == "False"
