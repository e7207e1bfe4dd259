"""`python -m convx tune`, and what it says where it can't."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn
from tuned import own_folder

from convx import _named_models
from convx.demo import _torchvision
from convx.tune.cli import main as tune_command

__all__ = ["own_folder"]


@pytest.fixture(autouse=True)
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def small(): return nn.Sequential(nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, groups=6))\n"
        "def wrong(): return 5\n"
        "def wide(channels): return nn.Conv2d(3, channels, 1)\n"
        "def broken(): raise RuntimeError('out of paper')\n"
        "def flat(): return nn.Flatten()\n"
        "value = 5\n"
    )
    (tmp_path / "no_module.py").write_text("raise OSError('out of ink')\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["my_networks:small", "--size", "10", "--device", "cpu", "--rounds", "1", "--quiet"]
    assert tune_command([*arguments, "--training", "--channels-last"]) == 0
    assert "6 problems, 6 measured now" in capsys.readouterr().out
    assert tune_command([*arguments, "--channels-last"]) == 0
    assert "2 problems, 0 measured now" in capsys.readouterr().out
    from convx.__main__ import main

    assert main(["tune", *arguments]) == 0
    for wrong in (
        ["my_networks:wrong"],
        ["my_networks:none"],
        ["no_such_network"],
        [*arguments, "--batch", "0"],
    ):
        with pytest.raises(SystemExit):
            tune_command(wrong)
    errors = capsys.readouterr().err
    assert "makes a int" in errors and "no model 'no_such_network'" in errors and "--batch must be" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["my_networks:small", "--device", "bogus"], "--device bogus: no such device; supported: cpu, cuda"),
        (["my_networks:small", "--device", "cuda:x"], "--device cuda:x: no such device"),
        (["my_networks:small", "--device", "cuda:999"], "--device cuda:999: torch sees"),
        (["my_networks:small", "--device", "mps"], "--device mps: nothing can be measured there"),
        (["my_networks:small", "--device", "meta"], "--device meta: nothing can be measured there"),
        (["my_networks:wide"], "my_networks:wide: TypeError: wide() missing 1 required"),
        (["my_networks:value"], "my_networks:value: TypeError: 'int' object is not callable"),
        (["my_networks:broken"], "my_networks:broken: RuntimeError: out of paper; MODULE is imported"),
        (["no_module:any"], "no_module:any: OSError: out of ink"),
        ([".a:b"], "no model '.a:b'"),
        (["my_networks:flat", "--device", "cpu"], "reaches no Conv1d or Conv2d"),
        (
            ["my_networks:small", "--device", "cpu", "--channels", "4", "--size", "5"],
            "my_networks:small can't run on images of shape (1, 4, 5, 5) in layout nchw: ",
        ),
        (
            ["my_networks:small", "--device", "cpu", "--dtype", "tf32"],
            "--device cpu has no TF32",
        ),
        (["my_networks:small", "--device", "cpu", "--size", "2"], "--batch, --channels, --size and --dtype"),
    ],
)
def test_what_cannot_be_tuned(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        tune_command([*arguments, "--quiet"])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_names_of_timm_may_have_colons(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> nn.Module:
        raise ValueError(f"Unknown model {name}")

    name = "hf-hub:timm/resnet18.a1_in1k"
    libraries = {"torchvision": unknown, "timm": {name: nn.Flatten()}.__getitem__}
    monkeypatch.setattr(_named_models, "_LIBRARIES", libraries)
    assert isinstance(_named_models.build(name), nn.Flatten)


def test_nothing_is_fetched_for_a_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    def detector(weights: str = "all", weights_backbone: str = "some") -> nn.Module:
        assert weights is None and weights_backbone is None
        return nn.Flatten()

    def classifier(weights: str = "all") -> nn.Module:
        assert weights is None
        return nn.Flatten()

    builders = {"detector": detector, "classifier": classifier}
    torchvision = SimpleNamespace(models=SimpleNamespace(get_model_builder=builders.get))
    monkeypatch.setattr(_torchvision, "import_torchvision", lambda: torchvision)
    for name in builders:
        assert isinstance(_named_models.build(name), nn.Flatten)
