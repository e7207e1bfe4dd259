"""Networks of all families of torchvision, many of timm and the vision models of transformers, optimized."""

from __future__ import annotations

import pytest
import torch
from models import torchvision_models
from optimized import fused_is_the_fastest
from torch.nn.modules.batchnorm import _BatchNorm

import convx
from benchmarks.families import norms_of
from benchmarks.family_networks import FamilyNetwork, networks
from benchmarks.network_kinds import Networks
from convx.optimize.check import Reference
from convx.optimize.graph import Reader

__all__ = ["fused_is_the_fastest"]

# Beginnings of why, for networks that torch.fx can't follow.
ONE_BY_ONE = {
    "DPTForDepthEstimation": "TypeError: dpt.encoder.layer.0 has hooks",
    "SegformerForSemanticSegmentation": "TypeError: segformer.stages.0 has hooks",
}
# Layers for which convx has nothing.
LEFT = {
    "DPTForDepthEstimation": "ConvTranspose2d",
    "lambda_resnet26t": "Conv3d",
    "lowformer_b0": "ConvTranspose2d",
}
# Most of their batch norms are behind linear layers or concatenations, or before convolutions.
FEW_FOLDED = (
    *("inception_next_atto", "levit_128s", "mixnet_s", "tf_mixnet_s", "visformer_tiny"),
    *("xcit_nano_12_p16_224", "LevitForImageClassification"),
)


@pytest.mark.slow
@pytest.mark.parametrize("network", networks(), ids=lambda each: f"{each.library}/{each.name}")
def test_families(network: FamilyNetwork) -> None:
    try:
        model, x = network.made()
    except ImportError as error:
        pytest.skip(str(error))
    optimized = convx.optimize(model, x, layout="as given")  # half of the time
    report = optimized.report
    assert report is not None and report.rows
    why = f"layers are run one by one: {ONE_BY_ONE[network.name]}" if network.name in ONE_BY_ONE else ""
    assert report.reason.startswith(why) and bool(report.reason) == bool(why)
    assert {row.reason.partition(":")[0] for row in report.left} == {*filter(None, [LEFT.get(network.name)])}
    if not why:
        assert not Reader(optimized.network).has_effects()  # type: ignore[arg-type]
        norms = sum(isinstance(module, _BatchNorm) for module in model.modules())
        folded = norms - norms_of(optimized.network)
        assert folded >= 0.4 * norms or network.name in FEW_FOLDED, (folded, norms)

    with torch.no_grad():
        reference = Reference(model, (x,), {})
        assert reference.error < 1e-3
        assert reference.error_of(optimized) <= 2 * reference.error + 1e-6
        assert type(optimized(x)) is type(model(x))


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
