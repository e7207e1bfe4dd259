"""Bad input, one by one: the error names the argument, what was given and what is supported.

It is a TypeError, or convx.InvalidArgument, which test_invalid_argument.py is about.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import convx
from convx.functional import conv1d, conv2d, conv2d_input_grad, conv2d_weight_grad

BAD = (convx.InvalidArgument, TypeError)


def image() -> Tensor:
    return torch.randn(2, 4, 6, 5)


def filters() -> Tensor:
    return torch.randn(4, 1, 3, 3)


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("rank of input", {"input": torch.randn(4, 6)}, r"input must have 4 dimensions, got 2: shape \(4, 6\)"),
    ("rank of weight", {"weight": torch.randn(4, 3, 3)}, r"weight must have 4 dimensions, got 3"),
    ("rank of bias", {"bias": torch.randn(4, 1)}, r"bias must have shape \(4,\).*got \(4, 1\)"),
    ("no dimension of input", {"input": torch.randn(())}, r"input must have 4 dimensions, got 0: shape \(\)"),
    ("no dimension of weight", {"weight": torch.randn(())}, r"weight must have 4 dimensions, got 0"),
    ("no dimension of bias", {"bias": torch.randn(())}, r"bias must have shape \(4,\).*got \(\)"),
    *(
        (
            f"rank {rank} with same",
            {"weight": torch.randn((4,) * rank), "padding": "same"},
            rf"weight must have 4 dimensions, got {rank}: shape \({', '.join('4' * rank)}",
        )
        for rank in (0, 1, 2, 3, 5)
    ),
    ("size of bias", {"bias": torch.randn(5)}, r"bias must have shape \(4,\).*got \(5,\)"),
    (
        "dtype of weight",
        {"weight": filters().double()},
        r"weight must have the dtype of input \(float32\), got float64",
    ),
    (
        "dtype of bias",
        {"bias": torch.randn(4).half()},
        r"bias must have the dtype of input \(float32\), got float16",
    ),
    ("integers", {"input": image().int(), "weight": filters().int()}, r"input must be float32, .*got int32"),
    (
        "complex",
        {"input": image().cfloat(), "weight": filters().cfloat()},
        r"input must be float32, .*got complex64",
    ),
    (
        "channels",
        {"input": torch.randn(2, 6, 6, 5)},
        r"groups must divide both.*groups 4 with 6 input channels",
    ),
    ("groups", {"groups": 3}, r"groups must divide both channel counts, got groups 3 with 4 input"),
    ("no groups", {"groups": 0}, r"groups must be at least 1, got 0"),
    (
        "weight of other groups",
        {"groups": 2},
        r"weight must have input channels / groups = 4 / 2 = 2 in dimension 1, got 1",
    ),
    ("stride 0", {"stride": 0}, r"stride must be at least 1, got \(0, 0\)"),
    ("negative stride", {"stride": (1, -1)}, r"stride must be at least 1, got \(1, -1\)"),
    ("dilation 0", {"dilation": 0}, r"dilation must be at least 1, got \(0, 0\)"),
    ("negative padding", {"padding": -1}, r"padding must be at least 0, got \(top -1"),
    ("negative side", {"padding": ((0, 0), (0, -2))}, r"padding must be at least 0, .*right -2"),
    (
        "empty filter",
        {"weight": torch.randn(4, 1, 0, 3)},
        r"weight: the filter's height and width must be at least 1",
    ),
    (
        "large filter",
        {"weight": torch.randn(4, 1, 7, 3)},
        r"weight: the filter spans 7 in height .*has only 6",
    ),
    (
        "empty image",
        {"input": torch.randn(2, 4, 0, 5)},
        r"input: height and width must be at least 1, got \(0, 5\)",
    ),
    ("padding of 64 bits", {"padding": 2**62}, r"the height of the padded input .*overflows 64 bits"),
    ("dilation of 64 bits", {"dilation": 2**63 - 1}, r"the height of .*the dilated filter overflows 64 bits"),
    ("too many outputs", {"padding": 2**61}, r"the output of size .*more elements than 64 bits can address"),
    ("activation", {"activation": "tanh"}, r"activation must be one of none, relu, .*got 'tanh'"),
    (
        "algorithm",
        {"algorithm": "fastest"},
        r"algorithm must be one of auto, depthwise, .*native.*got 'fastest'",
    ),
    ("candidate", {"algorithm": "depthwise/warp"}, r"algorithm 'depthwise/warp' can't run this problem"),
    ("sparse", {"input": image().to_sparse()}, r"input must be a dense tensor.*got torch.sparse_coo"),
    ("no tensor", {"input": [1.0]}, r"input must be a tensor, got list"),
    ("bias no tensor", {"bias": 1.0}, r"bias.*must be a tensor|bias"),
    ("float stride", {"stride": 1.5}, r"stride takes ints, got 1.5 \(float\)"),
    ("stride of a bool", {"stride": True}, r"stride takes ints, got True \(bool\)"),
    ("stride of bools", {"stride": (1, True)}, r"stride takes ints, got True \(bool\)"),
    ("dilation of a bool", {"dilation": [True]}, r"dilation takes ints, got True \(bool\)"),
    ("padding of a bool", {"padding": False}, r"padding takes ints, got False \(bool\)"),
    ("side of a bool", {"padding": ((0, 1), (True, 0))}, r"padding takes ints, got True \(bool\)"),
    ("groups of a bool", {"groups": True}, r"groups takes ints, got True \(bool\)"),
    ("numpy's bool", {"groups": np.True_}, r"groups takes ints, got .*True"),
    ("tensor's bool", {"stride": torch.tensor(True)}, r"stride takes ints, got tensor\("),
    ("large stride", {"stride": 2**70}, rf"stride takes ints that fit into 64 bits, got {2**70}"),
    ("large sides", {"padding": (2**63,)}, rf"padding takes ints that fit into 64 bits, got {2**63}"),
    ("very negative", {"padding": ((0, -(2**64)), 0)}, rf"padding takes ints that fit.*, got -{2**64}"),
    ("large dilation", {"dilation": (1, 2**63)}, rf"dilation takes ints that fit.*, got {2**63}"),
    ("large groups", {"groups": 2**64}, rf"groups takes ints that fit into 64 bits, got {2**64}"),
    ("numpy's large", {"stride": np.uint64(2**63)}, rf"stride takes ints that fit.*, got {2**63}"),
    (
        "large same",
        {"dilation": 2**62, "padding": "same"},
        r"padding='same' for a filter of size 3 with dilation \d+ overflows 64 bits",
    ),
    ("overflow", {"padding": 2**62}, r"height of the padded input .*overflows 64 bits"),
    ("large output", {"padding": 2**40}, r"the output of size .* has more elements than 64 bits"),
    ("three strides", {"stride": (1, 1, 1)}, r"stride takes an int or a pair of ints .*got \(1, 1, 1\)"),
    ("three paddings", {"padding": (1, 1, 1)}, r"padding takes an int, .*got \(1, 1, 1\)"),
    ("odd padding", {"padding": ((1, 1, 1), (0, 0))}, r"padding of one dimension .*got \(1, 1, 1\)"),
    ("padding name", {"padding": "full"}, r"padding takes numbers, 'same' or 'valid', got 'full'"),
    (
        "same with stride",
        {"padding": "same", "stride": 2},
        r"padding='same' needs stride 1, got stride \(2, 2\)",
    ),
]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("changes", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_conv2d(changes: dict[str, Any], message: str, grad: bool) -> None:
    arguments: dict[str, Any] = {"input": image(), "weight": filters(), "groups": 4, **changes}
    if grad and isinstance(arguments["input"], Tensor) and arguments["weight"].is_floating_point():
        arguments["weight"] = arguments["weight"].clone().requires_grad_()
    with pytest.raises(BAD, match=message):
        conv2d(**arguments)


META = [case for case in CASES if case[0] != "candidate"]


@pytest.mark.parametrize(("changes", "message"), [case[1:] for case in META], ids=[case[0] for case in META])
def test_the_fakes_say_the_same(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"input": image(), "weight": filters(), "groups": 4, **changes}
    meta = {k: v.to("meta") if isinstance(v, Tensor) else v for k, v in arguments.items()}
    with pytest.raises(BAD, match=message):
        conv2d(**meta)


def test_devices() -> None:
    with pytest.raises(BAD, match="weight must be on the device of input"):
        conv2d(image().to("meta"), filters(), groups=4)


@pytest.mark.gpu
def test_devices_gpu() -> None:
    with pytest.raises(BAD, match=r"weight must be on the device of input \(cuda:0\), got cpu"):
        conv2d(image().cuda(), filters(), groups=4)


def test_a_method_that_cannot_run_says_why() -> None:
    with pytest.raises(
        BAD, match=r"algorithm 'depthwise' can't run this problem: .*groups.*what can run it: auto, .*native"
    ):
        conv2d(image(), torch.randn(4, 2, 3, 3), groups=2, algorithm="depthwise")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": filters()}, r"weight of a 1D convolution needs 3 dimensions"),
        ({"input": image()}, r"input of a 1D convolution needs 3 dimensions .*got 4"),
        ({"weight": torch.randn(())}, r"weight of a 1D convolution needs 3 dimensions.*got 0: shape \(\)"),
        ({"weight": filters(), "padding": "same"}, r"weight of a 1D convolution needs 3 dimensions"),
        ({"input": torch.randn(9)}, r"input of a 1D convolution needs 3 dimensions .*got 1: shape \(9,\)"),
        ({"stride": True}, r"stride takes ints, got True"),
        ({"groups": True}, r"groups takes ints, got True"),
        ({"dilation": (2**63,)}, rf"dilation takes ints that fit into 64 bits, got {2**63}"),
        ({"groups": 2**64}, rf"groups takes ints that fit into 64 bits, got {2**64}"),
        ({"stride": (1, 2)}, r"stride of a 1D convolution takes one int, got \(1, 2\)"),
        ({"padding": (1, 2)}, r"padding of a 1D convolution takes .*got \(1, 2\)"),
        ({"padding": "full"}, r"padding takes numbers, 'same' or 'valid', got 'full'"),
        ({"input": None}, r"input must be a tensor, got NoneType"),
    ],
)
def test_conv1d(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "input": torch.randn(2, 4, 9),
        "weight": torch.randn(4, 1, 3),
        "groups": 4,
        **changes,
    }
    with pytest.raises(BAD, match=message):
        conv1d(**arguments)


def test_gradients() -> None:
    grad = torch.randn(2, 4, 4, 3)
    with pytest.raises(
        BAD, match=r"output_grad must have the shape of the output, \(2, 4, 6, 5\), got \(2, 4, 4, 3\)"
    ):
        conv2d_input_grad(grad, filters(), (2, 4, 6, 5), padding=1, groups=4)
    with pytest.raises(BAD, match=r"output_grad must have the shape of the output"):
        conv2d_weight_grad(image(), grad, (4, 1, 3, 3), padding=1, groups=4)
    with pytest.raises(BAD, match=r"input_size must hold 4 integers"):
        conv2d_input_grad(grad, filters(), (2, 4, 6), groups=4)
    with pytest.raises(BAD, match=r"output_grad must have the dtype of input \(float32\), got float64"):
        conv2d_weight_grad(image(), grad.double(), (4, 1, 3, 3), groups=4)


GRADIENTS: list[tuple[dict[str, Any], str]] = [
    ({"size": (2, 4, 6)}, r"size must hold 4 integers \(one per dimension\), got 3: \(2, 4, 6\)"),
    ({"size": (1,) * 5, "padding": "same"}, r"size must hold 4 integers .*got 5"),
    ({"size": 5}, r"size takes 4 ints, one per dimension, got 5"),
    ({"size": "2465"}, r"size takes ints, got '2' \(str\)"),
    ({"size": (True, 1, 3, 3)}, r"size takes ints, got True"),
    ({"size": (2**70, 1, 3, 3)}, rf"size takes ints that fit into 64 bits, got {2**70}"),
    ({"output_grad": [1.0]}, r"output_grad must be a tensor, got list"),
    ({"output_grad": torch.randn(())}, r"output_grad must have 4 dimensions, got 0"),
    ({"stride": True}, r"stride takes ints, got True"),
    ({"groups": True}, r"groups takes ints, got True"),
    ({"groups": "4"}, r"groups takes ints, got '4' \(str\)"),
    ({"dilation": 2**63}, rf"dilation takes ints that fit into 64 bits, got {2**63}"),
    ({"algorithm": None}, r"algorithm must be of type str, got None"),
    ({"algorithm": "fastest"}, r"algorithm must be one of auto, "),
]


@pytest.mark.parametrize(("changes", "message"), GRADIENTS)
def test_gradients_name_their_arguments(changes: dict[str, Any], message: str) -> None:
    grad = changes.get("output_grad", torch.randn(2, 4, 4, 3))
    rest = {"groups": 4, **{name: changes[name] for name in changes if name not in ("size", "output_grad")}}
    with pytest.raises(BAD, match=message.replace("size ", "input_size ", 1)):
        conv2d_input_grad(grad, filters(), changes.get("size", (2, 4, 6, 5)), **rest)
    with pytest.raises(BAD, match=message.replace("size ", "weight_size ", 1)):
        conv2d_weight_grad(image(), grad, changes.get("size", (4, 1, 3, 3)), **rest)


@pytest.mark.parametrize("padding", [0, (1,), (0, 1), ((0, 0), (1, 1)), "same", "valid"])
@pytest.mark.parametrize("rank", [0, 1, 2, 3, 5])
def test_dimensions_of_weights_whatever_the_padding(rank: int, padding: Any) -> None:
    weight = torch.randn((4,) * rank)
    message = rf"weight.* dimensions.* {rank}|explain takes .* weight of shape \({', '.join('4' * rank)}"
    with pytest.raises(BAD, match=message):
        conv2d(image(), weight, padding=padding)
    with pytest.raises(BAD, match=message):
        conv2d_input_grad(torch.randn(2, 4, 4, 3), weight, (2, 4, 6, 5), padding=padding)
    with pytest.raises(BAD, match=message):
        convx.explain(image(), weight, padding=padding)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "circular"])
@pytest.mark.parametrize("rank", [0, 1, 2, 5])
def test_dimensions_of_a_layers_input(rank: int, mode: str) -> None:
    layer = convx.nn.Conv2d(4, 4, 3, padding=1, groups=4, padding_mode=mode)
    for call in (layer, partial(convx.explain, layer)):
        with pytest.raises(BAD, match=rf"input .*\({', '.join('4' * rank)}"):
            call(torch.randn((4,) * rank))


DTYPES = sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_are_named(dtype: torch.dtype) -> None:
    if dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        assert conv2d(image().to(dtype), filters().to(dtype), groups=4).dtype == dtype
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has some of them for experiments, and drops others
        input, weight = torch.empty(2, 4, 6, 5, dtype=dtype), torch.empty(4, 1, 3, 3, dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    for device in ("cpu", "meta") if not input.is_quantized else ("cpu",):
        with pytest.raises(BAD, match=rf"input must be .*got {name}; convert it with"):
            conv2d(input.to(device), weight.to(device), groups=4)
    with pytest.raises(BAD, match=rf"input must be .*got {name}; convert it with"):
        convx.explain(input, weight, groups=4)
    with pytest.raises(BAD, match=rf"weight must .*got {name}; convert"):
        conv2d(image(), weight, groups=4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias": 1.0}, r"bias must be a tensor, got float"),
        ({"groups": "4"}, r"groups takes ints, got '4' \(str\)"),
        ({"activation": None}, r"activation must be of type str, got None"),
        ({"algorithm": None}, r"algorithm must be of type str, got None"),
        ({"packed": "x"}, r"packed must be a PackedFilters, got str"),
    ],
)
def test_arguments_of_another_type(changes: dict[str, Any], message: str) -> None:
    for call, input, weight in (
        (conv2d, image(), filters()),
        (conv1d, torch.randn(2, 4, 9), torch.randn(4, 1, 3)),
    ):
        with pytest.raises(TypeError, match=message):
            call(input, weight, **{"groups": 4, **changes})


def test_integers_of_other_kinds_are_no_error() -> None:
    assert conv2d(image(), filters(), groups=np.int64(4)).shape == (2, 4, 4, 3)
    step = np.int32(1)
    assert conv2d(image(), filters(), None, step, (step, step), [step], 4).shape == (2, 4, 6, 5)
    assert conv2d(image(), filters(), stride=torch.tensor(2), groups=4).shape == (2, 4, 2, 2)
    size = np.array([2, 4, 6, 5])
    assert conv2d_input_grad(torch.randn(2, 4, 4, 3), filters(), size, groups=np.int8(4)).shape == (
        2,
        4,
        6,
        5,
    )
    with pytest.raises(BAD, match="weight must have the dtype of input"):
        conv2d(image(), filters().double(), groups=np.int64(4))


def test_modules_pass_errors_on() -> None:
    with pytest.raises(BAD, match="activation must be one of"):
        convx.nn.Conv2d(4, 4, 3, groups=4, activation="tanh")(image())


BROKEN = """
    import torch, convx
    for call in (
        lambda: convx.functional.conv2d(torch.randn(1, 4, 6, 6), torch.randn(4, 1, 3, 3), groups=4),
        lambda: convx.nn.Conv2d(4, 4, 3, groups=4)(torch.randn(1, 4, 6, 6)),
        lambda: convx.explain(torch.randn(1, 4, 6, 6), torch.randn(4, 1, 3, 3), groups=4),
        lambda: convx.convert_(torch.nn.Conv2d(4, 4, 3, groups=4)),
        convx.methods,
    ):
        try:
            call()
        except (RuntimeError, ImportError) as error:
            print("reason:", error)
    from convx.info import report
    print(report())
"""


def copy_of_package(folder: Path) -> Path:
    """The Python files of convx alone, linked into a folder."""
    source = Path(convx.__file__).parent
    target = folder / "convx"
    for file in source.rglob("*.py"):
        link = target / file.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return target


@pytest.mark.parametrize("kind", ["missing", "broken"])
def test_import_survives_missing_and_broken_libraries(kind: str, tmp_path: Path) -> None:
    package = copy_of_package(tmp_path)
    # Symlinked files would find the true package's libraries through their own path.
    loader = package / "_libraries.py"
    text = loader.read_text()
    loader.unlink()
    loader.write_text(text)
    if kind == "broken":
        (package / "lib").mkdir()
        (package / "lib" / "libconvx_cpu.so").write_text("no library")
        core = next(Path(convx.__file__).parent.glob("_core*.so")).name
        (package / core).write_text("no module")
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BROKEN)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    expected = "does not exist" if kind == "missing" else "can't be loaded"
    reasons = [line for line in result.stdout.splitlines() if line.startswith("reason:")]
    assert len(reasons) == 5
    assert all("libconvx_cpu.so" in reason and expected in reason for reason in reasons[:2])
    assert all("convx._core, the planner, can't be loaded" in reason for reason in reasons[2:])
    assert "libconvx_cpu: not loaded" in result.stdout
