"""Tuning records: found again, checked, and nothing done to their files breaks anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from at_once import at_once
from torch import nn
from tuned import damage, depthwise, here, own_folder, plans, record

import convx
from convx import _core
from convx.tune import folder, kernels, records

__all__ = ["own_folder"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("us = 3.5\nus = 4", "'us' is given twice"),
        ("us = fast", "'us' takes 1 numbers, got 'fast'"),
        ("us = -1", "us must be above 0"),
        ("us = nan", "us"),
        ("us = 3\ncolour = red", "no field is called 'colour'"),
        ("us = 3\nnonsense", "no '=' in the line 'nonsense'"),
        ("", "'us' is missing"),
    ],
)
def test_records_in_text_are_checked(line: str, message: str) -> None:
    text = "\n".join(each for each in records._text(record()).splitlines() if not each.startswith("us "))
    with pytest.raises(ValueError, match=message):
        _core.remember_tuned(f"{text}\n{line}")
    assert _core.select(depthwise(), here()).plan.source != "tuned"


def test_a_record_is_found_again() -> None:
    problem = depthwise(stride=(2, 1), padding=(1, 2, 0, 1), bias=True, activation="relu6")
    written = record(problem, plans(problem)[0])
    assert records.find(problem, here()) is None
    assert records.save(written)
    assert records.find(problem, here()) == written
    assert records.find(depthwise(), here()) is None
    assert records.load() == 1
    assert _core.select(problem, here()).plan.source == "tuned"


DAMAGES = [
    *("empty", "cut", "binary", "huge", "a list", "another format", "a field too many", "no time"),
    *("no kernel", "a negative time", "no channels", "another name", "a folder", "a pipe", "deep"),
    *("a deep environment", "an endless time", "half a character", "two lines", "times in words"),
    "an endless candidate",
]


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_records_warn_once_and_are_written_anew(kind: str) -> None:
    good, bad = record(depthwise(batch=2)), record()
    assert records.save(good) and records.save(bad)
    damage(bad.path, kind)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert records.load() == 1
        assert records.load() == 1
        assert records.find(depthwise(), here()) is None
    assert len(seen) == 1 and "passes over the tuning record" in str(seen[0].message)
    if kind != "a folder":
        assert records.save(bad)
        assert records.find(depthwise(), here()) == bad


UNKNOWN = [
    ("vanished", r"no method is called 'vanished', the methods are depthwise, "),
    ("auto", r"no method is called 'auto'"),
    ("depthwise/gone rows=4", r"no kernel is called 'depthwise/gone'; forward .* has depthwise/"),
    ("native/matmul", r"no kernel is called 'native/matmul'; .* has native"),
    ("pointwise/outer", r"'pointwise/outer' can't run forward .*: the filter is not 1x1"),
]


@pytest.mark.parametrize(("algorithm", "reason"), UNKNOWN)
def test_unknown_algorithms_warn(algorithm: str, reason: str) -> None:
    written = record(algorithm=algorithm)
    assert records.save(written) and records.save(record(depthwise(batch=2)))
    with pytest.warns(RuntimeWarning) as seen:
        assert records.load() == 1
        assert records.load() == 1
    (warning,) = seen
    assert str(written.path) in str(warning.message) and re.search(reason, str(warning.message))
    assert "delete it, or run convx.tune again" in str(warning.message)
    assert _core.select(depthwise(), here()).plan.source != "tuned"


def test_unknown_methods_of_other_devices_warn() -> None:
    """Their kernels are not known before the device is there."""
    gpu = replace(record(), environment={**record().environment, "device": "a GPU", "processor": ""})
    assert records.save(replace(gpu, algorithm="depthwise/strip rows=4"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records.load() == 1
    assert records.save(replace(gpu, algorithm="vanished"))
    with pytest.warns(RuntimeWarning, match="no method is called 'vanished'"):
        assert records.load() == 0


def test_each_record_warns_for_itself() -> None:
    bad = [record(depthwise(batch=batch)) for batch in (1, 2, 3)]
    for each, kind in zip(bad, ("cut", "binary", "another format"), strict=True):
        assert records.save(each)
        damage(each.path, kind)
    with pytest.warns(RuntimeWarning) as seen:
        assert records.load() == 0
        assert records.load() == 0
    assert len(seen) == 3
    for each in bad:
        assert sum(str(each.path) in str(warning.message) for warning in seen) == 1


def test_a_folder_that_cannot_be_read_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert records.save(record())

    def refuse(path: object) -> None:  # root may read everything
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.warns(RuntimeWarning, match="can't read .*records.*CONVX_CACHE_DIR names another") as seen:
        assert records.load() == 0
        assert records.load() == 0
    assert len(seen) == 1


def test_what_cannot_be_looked_at_hides_no_record() -> None:
    """A link to nothing; what another process removes meanwhile looks the same."""
    assert records.save(record())
    (records.folder() / "gone.json").symlink_to("nowhere")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records.load() == 1


@pytest.mark.parametrize("algorithm", ["vanished", "depthwise/gone rows=4", "native/matmul"])
def test_a_plan_that_is_gone_is_measured_anew(algorithm: str) -> None:
    assert records.save(record(algorithm=algorithm))
    layer, image = nn.Conv2d(8, 8, 3, groups=8, bias=False), torch.randn(1, 8, 10, 12)
    with pytest.warns(RuntimeWarning, match="passes over the tuning record"):
        (first,) = convx.tune(layer, image, rounds=1, progress=False).rows
    (second,) = convx.tune(layer, image, rounds=1, progress=False).rows
    assert first.is_new and not second.is_new
    assert first.winner == second.winner and first.winner in plans(depthwise())


def test_a_tiling_that_is_gone_is_measured_anew() -> None:
    kernel = next(name for name in plans(depthwise()) if " " in name).split(" ")[0]
    assert records.save(record(algorithm=f"{kernel} rows=99999"))
    layer, image = nn.Conv2d(8, 8, 3, groups=8, bias=False), torch.randn(1, 8, 10, 12)
    (row,) = convx.tune(layer, image, rounds=1, progress=False).rows
    assert row.is_new and row.winner in plans(depthwise())


def test_a_kernel_that_makes_no_sense_is_measured_anew() -> None:
    kernels.write("abc", b"an image")
    assert records.save(replace(record(), kernel={"key": "abc", "name": "k"}))
    layer, image = nn.Conv2d(8, 8, 3, groups=8, bias=False), torch.randn(1, 8, 10, 12)
    with pytest.warns(RuntimeWarning, match="passes over the tuning record"):
        (row,) = convx.tune(layer, image, rounds=1, progress=False).rows
    assert row.is_new


@pytest.mark.parametrize("key", ["convx", "torch", "gpu_runtime", "deterministic", "processor"])
def test_foreign_records_are_passed_over(key: str) -> None:
    mine = record()
    foreign = replace(mine, environment={**mine.environment, key: "another"})
    assert records.save(foreign)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records.load() == 0
        assert records.find(depthwise(), here()) is None
    assert records.save(mine)
    assert records.load() == 1


def test_a_folder_that_cannot_be_written_warns_once(own_folder: Path) -> None:
    own_folder.write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match="CONVX_CACHE_DIR names another folder") as seen:
        assert not records.save(record())
        assert not records.save(record())
    assert len(seen) == 1
    assert records.load() == 0
    report = convx.tune(nn.Conv2d(8, 8, 3, groups=8), torch.randn(1, 8, 9, 9), rounds=1, progress=False)
    assert report.rows[0].is_new


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(own_folder: Path) -> None:
    assert records.save(record())
    records.folder().chmod(0o500)
    try:
        with pytest.warns(RuntimeWarning, match="can't write"):
            assert not records.save(record(depthwise(batch=3)))
        assert records.load() == 1
    finally:
        records.folder().chmod(0o700)


def test_writers_at_the_same_time_lose_nothing(own_folder: Path) -> None:
    """Threads write the same and different records over each other while others read."""

    def write(worker: int) -> None:
        for step in range(20):
            assert records.save(record(depthwise(batch=1 + step), us=1.0 + worker))
            found = records.find(depthwise(batch=1 + step), here())
            assert found is not None and found.us in (1.0, 2.0, 3.0, 4.0)

    at_once(4, write)
    assert records.load() == 20
    assert len(list(records.folder().iterdir())) == 20  # nothing half-written is left


def test_records_are_read_by_the_next_process(own_folder: Path) -> None:
    """What is wrong with some is no error at import."""
    damaged = record(depthwise(batch=2))
    assert records.save(record(algorithm="native")) and records.save(damaged)
    assert records.save(record(depthwise(batch=3), algorithm="vanished"))
    damage(damaged.path, "cut")
    code = (
        "import torch, convx\n"
        f"torch.set_num_threads({torch.get_num_threads()})\n"
        "x, w = torch.randn(1, 8, 10, 12), torch.randn(8, 1, 3, 3)\n"
        "print(convx.explain(x, w, groups=8).chosen.source)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(convx.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["tuned"], done.stderr
    assert done.stderr.count("RuntimeWarning") == 2


@pytest.mark.filterwarnings("ignore:convx passes over")
@pytest.mark.parametrize("asked", ["", "~no such user/convx", "x" * 300])
def test_no_cache_folder(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """Neither home nor a folder that can be looked into: nothing is kept, and nothing fails."""

    def no_home() -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("CONVX_CACHE_DIR", asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records.load() == 0
        assert kernels.read("abc") is None
    with pytest.warns(RuntimeWarning, match="CONVX_CACHE_DIR names another folder"):
        assert not records.save(record())
        assert not kernels.write("abc", b"an image")
    report = convx.tune(nn.Conv2d(8, 8, 3, groups=8), torch.randn(1, 8, 9, 9), rounds=1, progress=False)
    assert report.rows[0].is_new


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert folder.cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("CONVX_CACHE_DIR", "~/kept")
    assert folder.cache_folder() == Path.home() / "kept"
    monkeypatch.delenv("CONVX_CACHE_DIR")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder.cache_folder() == tmp_path / "xdg" / "convx"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert folder.cache_folder() == Path.home() / ".cache" / "convx"
