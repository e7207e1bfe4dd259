"""Small networks of all families of torchvision, many of timm and the vision models of transformers, with
random weights: those that tests optimize, and of which `python -m benchmarks.families` writes its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from convx.demo._torchvision import import_torchvision
from convx.demo.networks import calibrate

# Beginnings of torchvision's names: kinds of network that are built from the same blocks.
FAMILIES = (
    "alexnet",
    "convnext",
    "densenet",
    "efficientnet_b",
    "efficientnet_v2",
    "googlenet",
    "inception",
    "maxvit",
    "mnasnet",
    "mobilenet_v2",
    "mobilenet_v3",
    "regnet_x",
    "regnet_y",
    "resnet",
    "resnext",
    "shufflenet_v2",
    "squeezenet",
    "swin_",
    "swin_v2",
    "vgg",
    "vit",
    "wide_resnet",
)
# Sizes above the smallest that torchvision names, and what builds a network for a small one.
SIZES = {"inception": 96, "swin_": 64, "swin_v2": 64, "vit": 64}
OPTIONS: dict[str, dict[str, Any]] = {
    "googlenet": {"init_weights": False},
    "inception": {"init_weights": False},
    "vit": {"image_size": 64},
}
# A size for each; those that are built for one have that.
TIMM = {
    "coat_lite_tiny": 224,
    "convit_tiny": 224,
    "convnext_atto": 64,
    "convnextv2_atto": 64,
    "cpubone_nano": 64,
    "cs3darknet_s": 64,
    "deit_tiny_patch16_224": 224,
    "dla46x_c": 64,
    "dpn48b": 64,
    "ecaresnet26t": 64,
    "edgenext_xx_small": 64,
    "efficientformerv2_s0": 224,
    "efficientnet_b0": 64,
    "efficientvim_m1": 64,
    "efficientvit_b0": 64,
    "efficientvit_m0": 224,
    "ese_vovnet19b_slim_dw": 64,
    "fasternet_t0": 64,
    "fastvit_t8": 64,
    "gernet_s": 64,
    "ghostnet_050": 64,
    "hrnet_w18_small": 64,
    "inception_next_atto": 64,
    "lambda_resnet26t": 64,
    "lcnet_050": 64,
    "legacy_seresnet18": 64,
    "levit_128s": 224,
    "lowformer_b0": 64,
    "mixnet_s": 64,
    "mobilenetv3_small_050": 64,
    "mobilenetv4_conv_small": 64,
    "mobilevit_xxs": 64,
    "mobilevitv2_050": 64,
    "nf_regnet_b0": 64,
    "poolformer_s12": 64,
    "pvt_v2_b0": 64,
    "regnetx_002": 64,
    "regnety_002": 64,
    "repghostnet_050": 64,
    "repvgg_a0": 64,
    "repvit_m0_9": 64,
    "res2net50_14w_8s": 64,
    "resnest14d": 64,
    "resnet18": 64,
    "resnetv2_18": 64,
    "resnetv2_50x1_bit": 64,
    "rexnet_100": 64,
    "seresnet18": 64,
    "shvit_s1": 64,
    "skresnet18": 64,
    "starnet_s1": 64,
    "swiftformer_xs": 224,
    "tf_efficientnet_b0": 64,
    "tf_mixnet_s": 64,
    "tiny_vit_5m_224": 64,
    "tresnet_m": 64,
    "visformer_tiny": 224,
    "xception41": 64,
    "xcit_nano_12_p16_224": 224,
}
_WIDTHS, _ENCODER = [16, 32, 48, 64], {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_PATCHES = {**_ENCODER, "intermediate_size": 64, "image_size": 64, "patch_size": 16}
_STAGES = {"depths": [1, 1, 2, 1], "hidden_sizes": [16, 32, 64, 96]}
_ATTENTION = {"depths": [1, 1, 1, 1], "hidden_sizes": _WIDTHS}
_WINDOWS = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "image_size": 64, "window_size": 4}
# By what transformers calls a model's class without its ending; what makes it small.
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "BeitForImageClassification": _PATCHES,
    "BitForImageClassification": {**_STAGES, "embedding_size": 32, "num_groups": 4},
    "ConvNextForImageClassification": _STAGES,
    "ConvNextV2ForImageClassification": _STAGES,
    "CvtForImageClassification": {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 3], "depth": [1, 2, 3]},
    "Data2VecVisionForImageClassification": _PATCHES,
    "DeiTForImageClassification": _PATCHES,
    "Dinov2ForImageClassification": {**_ENCODER, "image_size": 64, "patch_size": 16},
    "Dinov2WithRegistersForImageClassification": {**_ENCODER, "image_size": 64, "patch_size": 16},
    "DPTForDepthEstimation": {
        **_PATCHES,
        "num_hidden_layers": 4,
        "backbone_out_indices": [0, 1, 2, 3],
        "neck_hidden_sizes": _WIDTHS,
        "fusion_hidden_size": 16,
    },
    "EfficientNetForImageClassification": {
        "width_coefficient": 0.25,
        "depth_coefficient": 0.5,
        "hidden_dim": 320,
    },
    "FocalNetForImageClassification": {
        "embed_dim": 16,
        "depths": [1, 1],
        "hidden_sizes": [16, 32],
        "focal_levels": [2, 2],
        "focal_windows": [3, 3],
        "image_size": 64,
    },
    "GLPNForDepthEstimation": {**_ATTENTION, "hidden_sizes": [16, 32, 40, 64], "decoder_hidden_size": 32},
    "HGNetV2ForImageClassification": {},
    "HieraForImageClassification": {
        "image_size": [64, 64],
        "embed_dim": 16,
        "depths": [1, 1, 1, 1],
        "num_heads": [1, 1, 2, 2],
    },
    "LevitForImageClassification": {
        "image_size": 64,
        "hidden_sizes": [32, 48, 64],
        "num_attention_heads": [2, 3, 4],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
    },
    "MobileNetV1ForImageClassification": {"depth_multiplier": 0.25},
    "MobileNetV2ForImageClassification": {"depth_multiplier": 0.35},
    "MobileNetV2ForSemanticSegmentation": {"depth_multiplier": 0.35, "num_labels": 5},
    "MobileViTForImageClassification": {
        "hidden_sizes": [32, 48, 64],
        "neck_hidden_sizes": [8, 16, 24, 32, 48, 64, 128],
        "num_attention_heads": 2,
    },
    "MobileViTV2ForImageClassification": {"width_multiplier": 0.5},
    "PoolFormerForImageClassification": _ATTENTION,
    "PPLCNetForImageClassification": {},
    "PvtForImageClassification": {**_ATTENTION, "image_size": 64, "hidden_sizes": [16, 32, 40, 64]},
    "PvtV2ForImageClassification": {**_ATTENTION, "image_size": 64, "hidden_sizes": [16, 32, 40, 64]},
    "RegNetForImageClassification": {**_STAGES, "embedding_size": 16, "groups_width": 8},
    "ResNetForImageClassification": {**_STAGES, "embedding_size": 16, "layer_type": "basic"},
    "ResNetModel": {**_STAGES, "embedding_size": 16},
    "SegformerForImageClassification": _ATTENTION,
    "SegformerForSemanticSegmentation": {**_ATTENTION, "decoder_hidden_size": 32},
    "SwiftFormerForImageClassification": {"depths": [2, 2, 2, 2], "embed_dims": [24, 32, 48, 64]},
    "SwinForImageClassification": _WINDOWS,
    "Swinv2ForImageClassification": _WINDOWS,
    "TextNetForImageClassification": {},
    "ViTForImageClassification": _PATCHES,
    "VitDetModel": {**_ENCODER, "image_size": 64, "pretrain_image_size": 64},
    "YolosModel": {**_PATCHES, "image_size": [64, 64]},
}
_KINDS = ("ForImageClassification", "ForSemanticSegmentation", "ForDepthEstimation", "Model")
_BATCH, _CALIBRATED = 2, 6  # statistics of few images make networks in which rounding grows


@dataclass(frozen=True)
class FamilyNetwork:
    """One network of a library."""

    library: str
    name: str

    def made(self) -> tuple[nn.Module, Tensor]:
        """In evaluation mode, every layer with a part in the result, and images for it. ImportError where the
        library is missing."""
        torch.manual_seed(0)
        build = {"torchvision": _of_torchvision, "timm": _of_timm, "transformers": _of_transformers}
        model, size = build[self.library](self.name)
        images = torch.randn(_CALIBRATED, 3, size, size)
        enliven(model.eval(), images)
        return model, images[:_BATCH]


def networks() -> list[FamilyNetwork]:
    """All of them, those of torchvision by their families."""
    names = {"torchvision": FAMILIES, "timm": TIMM, "transformers": TRANSFORMERS}
    return [FamilyNetwork(library, name) for library, every in names.items() for name in every]


def family_of(name: str) -> str:
    return max((family for family in FAMILIES if name.startswith(family)), key=len, default="")


def smallest(family: str) -> tuple[str, int]:
    """The family's network of torchvision with the fewest parameters, and a small size of images for it."""
    models = import_torchvision().models
    metas = {
        name: models.get_model_weights(name).DEFAULT.meta
        for name in models.list_models(module=models)
        if family_of(name) == family
    }
    assert metas, f"torchvision has no network {family}*"
    name = min(metas, key=lambda name: metas[name]["num_params"])
    return name, SIZES.get(family) or max(64, *metas[name]["min_size"])


def _of_torchvision(family: str) -> tuple[nn.Module, int]:
    name, size = smallest(family)
    return import_torchvision().models.get_model(name, weights=None, **OPTIONS.get(family, {})), size


def _of_timm(name: str) -> tuple[nn.Module, int]:
    import_torchvision()  # which timm would import in vain beside another torch
    import timm

    return timm.create_model(name, pretrained=False), TIMM[name]


def _of_transformers(name: str) -> tuple[nn.Module, int]:
    import_torchvision()
    import transformers

    kind = next(each for each in _KINDS if name.endswith(each))
    config = getattr(transformers, f"{name.removesuffix(kind)}Config")
    options = {"num_labels": 100, **TRANSFORMERS[name]}
    return getattr(transformers, name)(config(**options)), 64


def enliven(model: nn.Module, batch: Tensor) -> None:
    """Make every layer count in the output, as in a trained network.

    What constructors set to one value all over (layer scales of 1e-6, last norms and heads of 0) is drawn at
    random, for it would hide the convolutions before it. Norms get the batch's statistics, without which
    activations fade.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.numel() > 1 and parameter.min() == parameter.max():
                scales = parameter.numel() == max(parameter.shape) and not name.endswith("bias")
                nn.init.normal_(parameter, 0.5 if scales else 0.0, 0.1)
    calibrate(model, batch)
