"""Networks by name: of torchvision, of timm, of a file, of a module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from convx import _named_models
from convx._named_models import build
from convx.demo import _torchvision


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With files of networks, that is not on sys.path; that and the modules are as before afterwards."""
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    (tmp_path / "parts_beside.py").write_text("from torch import nn\nlayer = nn.Conv2d(3, 5, 1)\n")
    (tmp_path / "copy.py").write_text("from torch import nn\nnet = nn.Flatten\n")
    (tmp_path / "my net.py").write_text(
        "import dataclasses\n"
        "from torch import nn\n"
        "from parts_beside import layer\n"
        "@dataclasses.dataclass\n"
        "class Sizes:\n"
        "    channels: 'int' = 5\n"
        "def small(): return nn.Sequential(layer, nn.BatchNorm2d(Sizes().channels))\n"
        "def wrong(): return small(), 5\n"
        "def wide(channels): return nn.Conv2d(3, channels, 1)\n"
        "if __name__ == '__main__': raise AssertionError\n"
    )
    (tmp_path / "relative.py").write_text("from .parts_beside import layer\n")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("_file_") or name == "parts_beside":
            del sys.modules[name]


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """torchvision and timm with a network each; which names each was asked for."""
    asked: dict[str, list[str]] = {"torchvision": [], "timm": []}

    def maker(library: str, known: str) -> Callable[[str], nn.Module]:
        def make(name: str) -> nn.Module:
            asked[library].append(name)
            if name != known:
                raise ValueError(f"Unknown model {name}")
            return nn.Flatten()

        return make

    names = {"torchvision": "squeezenet1_1", "timm": "lcnet_050"}
    for library, known in names.items():
        monkeypatch.setitem(_named_models._LIBRARIES, library, maker(library, known))
        models = SimpleNamespace(list_models=lambda known=known: [known, "another"])
        monkeypatch.setitem(sys.modules, f"{library}.models", models)
        monkeypatch.setitem(sys.modules, library, SimpleNamespace(models=models))
    monkeypatch.setattr(_torchvision, "import_torchvision", lambda: sys.modules["torchvision"])
    return asked


def test_a_library_by_its_name(libraries: dict[str, list[str]]) -> None:
    assert isinstance(build("torchvision:squeezenet1_1"), nn.Flatten)
    assert libraries == {"torchvision": ["squeezenet1_1"], "timm": []}
    assert isinstance(build("timm:lcnet_050"), nn.Flatten)
    assert libraries == {"torchvision": ["squeezenet1_1"], "timm": ["lcnet_050"]}


def test_a_bare_name_of_either_library(libraries: dict[str, list[str]]) -> None:
    assert isinstance(build("lcnet_050"), nn.Flatten)
    assert libraries == {"torchvision": ["lcnet_050"], "timm": ["lcnet_050"]}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "torchvision:squeezenet",
            "torchvision:squeezenet: Unknown model squeezenet; torchvision.models.list_models() has the "
            "names, squeezenet1_1 among them",
        ),
        ("timm:lcnet_05", "timm.models.list_models() has the names, lcnet_050 among them"),
        ("timm:hf-hub:timm/zzz", "timm:hf-hub:timm/zzz: Unknown model hf-hub:timm/zzz; timm.models"),
        ("timm:zzz", "timm:zzz: Unknown model zzz; timm.models.list_models() has the names"),
        ("zzz", "no model 'zzz' (torchvision: Unknown model zzz; timm: Unknown model zzz); supported: "),
        ("timm:", "no model 'timm:'"),
        (
            "no_such_library:net",
            "no_such_library:net: ModuleNotFoundError: No module named",
        ),
    ],
)
def test_what_no_library_has(name: str, message: str, libraries: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError) as raised:
        build(name)
    said = str(raised.value)
    assert message in said
    assert "list_models()" in said or said.count(_named_models._NAMES) == 1


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_a_library_that_is_not_there(
    library: str, libraries: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, f"{library}.models", None)
    with pytest.raises(ValueError, match=rf"^{library}:any: {library} can't be.*; pip install {library}$"):
        build(f"{library}:any")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torchvision:squeezenet1_1", "timm:lcnet_050"])
def test_the_libraries_themselves(name: str) -> None:
    library = name.partition(":")[0]
    try:
        _torchvision.import_torchvision()
        __import__(library)
    except ImportError:
        pytest.skip(f"{library} is not installed")
    assert any(isinstance(module, nn.Conv2d) for module in build(name).modules())
    with pytest.raises(ValueError, match=f"{name[:-1]}: .*{name.partition(':')[2]}.* among them"):
        build(name[:-1])


def test_a_file_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(build(f"{folder}/my net.py:small"), nn.Sequential)
    assert sys.path[0] == str(folder)
    monkeypatch.chdir(folder)
    assert isinstance(build("my net.py:small"), nn.Sequential)
    (folder / "a:b").mkdir()
    (folder / "copy.py").rename(folder / "a:b" / "flat.py")
    assert isinstance(build("a:b/flat.py:net"), nn.Flatten)


def test_a_file_called_as_a_module_of_python(folder: Path) -> None:
    import copy

    assert isinstance(build(f"{folder}/copy.py:net"), nn.Flatten)
    assert sys.modules["copy"] is copy


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my net.py", "my net.py names no function; supported: "),
        ("my net.py:", "my net.py: names no function; supported: "),
        ("my net.py:a-b", "names no function; supported: "),
        ("none.py:small", "there is no file {folder}/none.py; supported: "),
        ("my net.py:none", "AttributeError: module '_file_my net' has no attribute 'none'; FILE.py is run"),
        ("my net.py:wide", "TypeError: wide() missing 1 required positional argument: 'channels'; FILE.py"),
        ("my net.py:wrong", "my net.py:wrong makes a tuple, not a torch.nn.Module"),
        ("relative.py:layer", "ImportError: attempted relative import with no known parent package; FILE.py"),
    ],
)
def test_what_no_file_has(name: str, message: str, folder: Path) -> None:
    with pytest.raises(ValueError) as raised:
        build(f"{folder}/{name}")
    said = str(raised.value)
    assert name in said and message.format(folder=folder) in said
    assert "MODULE:FUNCTION" in said or "torch.nn.Module" in said


def test_a_gpu_without_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "is_tf32_supported", lambda: True)
    _named_models._require_tf32(device)
    monkeypatch.setattr(torch.cuda, "is_tf32_supported", lambda: False)
    with pytest.raises(ValueError, match=r"--dtype tf32: Tesla V100 has no TF32; supported there: float32, "):
        _named_models._require_tf32(device)
