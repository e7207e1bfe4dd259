"""Networks of all families of torchvision, many of timm and the vision models of transformers, optimized."""

from __future__ import annotations

import math

import pytest
import torch
from models import torchvision_models
from optimized import distance, fused_is_the_fastest
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

import convx
from benchmarks.family_looks import norms_of
from benchmarks.family_networks import FamilyNetwork, networks
from benchmarks.network_kinds import Networks
from convx import _layers
from convx.optimize.check import Reference
from convx.optimize.graph import Reader

__all__ = ["fused_is_the_fastest"]

# Why, for networks that torch.fx can't follow.
_BOXES = "TraceError: symbolically traced variables cannot be used as inputs to control flow"
_CODES = "AssertionError: This function expects rel_codes of type torch.Tensor."
ONE_BY_ONE = {
    "fasterrcnn": _CODES,
    "maskrcnn": _CODES,
    "retinanet": _BOXES,
    "ssdlite": _BOXES,
    "DPTForDepthEstimation": "TypeError: dpt.encoder.layer.0 has hooks",
    "SegformerForSemanticSegmentation": "TypeError: segformer.stages.0 has hooks",
}
# Layers for which convx has nothing.
LEFT = {
    **dict.fromkeys(("mvit_v1", "mvit_v2", "r2plus1d", "r3d", "s3d", "swin3d"), "Conv3d"),
    "maskrcnn": "ConvTranspose2d",
    "DPTForDepthEstimation": "ConvTranspose2d",
    "lambda_resnet26t": "Conv3d",
    "lowformer_b0": "ConvTranspose2d",
}
# Most of their batch norms are behind linear layers, layers of volumes or concatenations, or before
# convolutions.
FEW_FOLDED = (
    *("r2plus1d", "r3d", "s3d"),
    *("inception_next_atto", "levit_128s", "mixnet_s", "tf_mixnet_s", "visformer_tiny"),
    *("xcit_nano_12_p16_224", "LevitForImageClassification"),
)


# Some that take long and are made of what others have. The table of families has them.
ALIKE = ("fcos", "keypointrcnn", "mc3", "raft_large", "ssd300")
TRIED = [each for each in networks() if each.name not in ALIKE]


@pytest.mark.slow
@pytest.mark.parametrize("network", TRIED, ids=lambda each: f"{each.library}/{each.name}")
def test_families(network: FamilyNetwork) -> None:
    try:
        model, example = network.made()
    except ImportError as error:
        pytest.skip(str(error))
    args, kwargs = _layers.arguments_of(example)
    optimized = convx.optimize(model, example, layout="as given")  # half of the time
    report = optimized.report
    assert report is not None and report.rows
    why = ONE_BY_ONE.get(network.name, "")
    assert report.reason.startswith("layers are run one by one" if why else "")
    assert why in report.reason and bool(report.reason) == bool(why)
    assert {row.reason.partition(":")[0] for row in report.left} == {*filter(None, [LEFT.get(network.name)])}
    if not why:
        assert not Reader(optimized.network).has_effects()  # type: ignore[arg-type]
        norms = sum(isinstance(module, _BatchNorm) for module in model.modules())
        folded = norms - norms_of(optimized.network)
        assert folded >= 0.4 * norms or network.name in FEW_FOLDED, (folded, norms)

    with torch.no_grad():
        reference = Reference(model, args, kwargs)
        assert reference.error < 1e-3 or network.task == "optical_flow"  # which can't be run in float64
        own_error, error = reference.errors_of(optimized)
        assert error <= 1e-5 if math.isnan(own_error) else error <= 2 * own_error + 1e-6
        own, reached = model(*args), optimized(*args)
        assert type(reached) is type(own)
        if network.task == "detection":
            assert_same_objects(reached, own)


def assert_same_objects(reached: list[dict[str, Tensor]], own: list[dict[str, Tensor]]) -> None:
    """Of each image some, with the same classes in the same order, in the same places."""
    for one, other in zip(reached, own, strict=True):
        assert list(one) == list(other) and len(other["boxes"]) > 0
        assert torch.equal(one["labels"], other["labels"])
        for name, values in other.items():
            assert distance(one[name].double(), values) < 1e-3, name


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize("name", ["mobilenet_v3_large", "squeezenet1_0"])
def test_errors_of_many_layers(name: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are by chance, and don't add up."""
    torchvision_models()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    made = Networks(f"{name} b1 float32 {layout}", torch.device("cuda"))
    with torch.no_grad():
        reference = Reference(made.make().eval(), (made.images,), {})
        converted = made.make().eval()
        convx.convert_(converted)
        optimized = convx.optimize(made.make().eval(), made.images)
        errors = {"converted": reference.error_of(converted), "optimized": reference.error_of(optimized)}
    assert all(error <= 2 * reference.error + 2e-7 for error in errors.values()), (reference.error, errors)
