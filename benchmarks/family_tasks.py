"""torchvision's networks for other tasks than classification: segmentation, detection, video, optical flow;
with random weights, and small."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from convx.demo._torchvision import import_torchvision

Size = tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """Families of torchvision's, each a beginning of names, with what the builder of a small one takes."""

    families: dict[str, dict[str, Any]]
    small: Size
    """Of an input."""
    full: Size
    inputs: Callable[[int, Size], tuple[Any, ...]]
    """What a model is called with, so many of a size."""
    sizes: dict[str, Size]
    """Families that take no small inputs."""


def _images(count: int, size: Size) -> tuple[Any, ...]:
    """Videos too."""
    return (torch.randn(count, 3, *size),)


def _pairs(count: int, size: Size) -> tuple[Any, ...]:
    """The second image of each is the first, moved and changed a little."""
    first = torch.randn(count, 3, *size)
    return first, first.roll((3, 5), (2, 3)) + 0.1 * torch.randn_like(first)


def _list_of_images(count: int, size: Size) -> tuple[Any, ...]:
    """Of pixels, every other one on its side."""
    height, width = size
    sizes = ((width, height) if place % 2 else (height, width) for place in range(count))
    return ([torch.rand(3, *each) for each in sizes],)


# Few candidates: of some thousand, two are always so near to each other that rounding decides between them.
_FEW = {"topk_candidates": 40, "detections_per_img": 10, "score_thresh": 0.0}
_ON_BACKBONES = ("segmentation", "detection")
_SURE = 10.0
_LARGE = ("s3d", "ssd300")  # which take no small inputs
_SIDES = {"min_size": 96, "max_size": 128}
_FEW_PROPOSALS = {
    **_SIDES,
    "rpn_pre_nms_top_n_test": 40,
    "rpn_post_nms_top_n_test": 8,
    "box_detections_per_img": 4,
    "box_score_thresh": 0.0,
}
TASKS = {
    "segmentation": Task({"deeplabv3": {}, "fcn": {}, "lraspp": {}}, (64, 64), (224, 224), _images, {}),
    "detection": Task(
        {
            "fasterrcnn": _FEW_PROPOSALS,
            "fcos": {**_SIDES, **_FEW},
            "keypointrcnn": _FEW_PROPOSALS,
            "maskrcnn": _FEW_PROPOSALS,
            "retinanet": {**_SIDES, **_FEW},
            "ssd300": _FEW,
            "ssdlite": _FEW,
        },
        (64, 96),
        (480, 640),
        _list_of_images,
        {},
    ),
    "video": Task(
        {
            "mc3": {},
            "mvit_v1": {"residual_with_cls_embed": True},
            "mvit_v2": {"residual_pool": True, "rel_pos_embed": True, "proj_after_attn": True},
            "r2plus1d": {},
            "r3d": {},
            "s3d": {},
            "swin3d": {},
        },
        (8, 64, 64),
        (16, 224, 224),
        _images,
        {"s3d": (14, 224, 224)},
    ),
    "optical_flow": Task({"raft_large": {}, "raft_small": {}}, (128, 128), (224, 224), _pairs, {}),
}


def families() -> list[str]:
    return [family for task in TASKS.values() for family in task.families]


def smallest(family: str) -> str:
    """The family's network with the fewest parameters."""
    models = import_torchvision().models
    every: list[str] = models.list_models(module=getattr(models, task_of(family)))
    names = [name for name in every if name.startswith(family)]
    assert names, f"torchvision has no network {family}*"
    sizes: dict[str, int] = {
        name: models.get_model_weights(name).DEFAULT.meta["num_params"] for name in names
    }
    return min(sizes, key=lambda name: sizes[name])


def built(family: str, full: bool) -> nn.Module:
    """Its smallest network. full: as it is by default, but for its weights."""
    task = task_of(family)
    if task == "detection":
        _make_operators_up()
    none: dict[str, Any] = {"weights": None, **({"weights_backbone": None} if task in _ON_BACKBONES else {})}
    options = {} if full else TASKS[task].families[family]
    build = _small_mvit if options and family.startswith("mvit") else import_torchvision().models.get_model
    model: nn.Module = build(smallest(family), **none, **options)
    return model


def _small_mvit(name: str, weights: None, **options: bool) -> nn.Module:
    """Two blocks of it: those that are built by name take videos of one size."""
    module = import_torchvision().models.video.mvit
    block, filter = module.MSBlockConfig, [3, 3, 3]
    blocks = [
        block(1, 32, 64, filter, filter, [1, 1, 1], [1, 4, 4]),
        block(2, 64, 64, filter, filter, [1, 2, 2], [1, 2, 2]),
    ]
    switches = ("residual_pool", "residual_with_cls_embed", "rel_pos_embed", "proj_after_attn")
    every = dict.fromkeys(switches, False) | options
    model: nn.Module = module.MViT((64, 64), 8, blocks, **every)
    return model


def counts(family: str) -> tuple[int, int]:
    """How many images an example has, and how many norms are calibrated by."""
    return (1, 2) if family in _LARGE else (2, 6)  # of fewer small ones rounding grows in the networks


def inputs(family: str, count: int, full: bool) -> tuple[Any, ...]:
    task = TASKS[task_of(family)]
    return task.inputs(count, task.full if full else task.sizes.get(family, task.small))


def as_pretrained(family: str, model: nn.Module) -> None:
    """What a detector with trained weights has, and one without has not: batch norms of its backbone that are
    frozen, which is a class of torchvision's own, and classes that are told apart."""
    if task_of(family) != "detection":
        return
    body: Any = getattr(getattr(model, "backbone", None), "body", None)
    if body is not None:
        _freeze(body)
    with torch.no_grad():
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear) and name.endswith("cls_score"):
                layer.weight *= _SURE


def _freeze(body: nn.Module) -> None:
    kind = import_torchvision().ops.FrozenBatchNorm2d
    for module in list(body.modules()):
        for name, layer in module.named_children():
            if type(layer) is nn.BatchNorm2d:
                frozen = kind(layer.num_features, layer.eps)
                frozen.load_state_dict(layer.state_dict())
                setattr(module, name, frozen.to(layer.weight).eval())


def task_of(family: str) -> str:
    """Empty where it is none of these."""
    return next((name for name, task in TASKS.items() if family in task.families), "")


def _make_operators_up() -> None:
    """What detectors need of torchvision's operators, where those did not load: in Python."""
    torchvision = import_torchvision()
    if torchvision.extension._has_ops():
        return
    torchvision.ops.boxes.nms = _nms
    pooling: Any = sys.modules["torchvision.ops.roi_align"]
    # torchvision has the other one in Python itself, and compiles it: half a minute.
    pooling._roi_align = getattr(pooling._roi_align, "__wrapped__", pooling._roi_align)


def _nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """As torchvision.ops.nms."""
    order = scores.argsort(descending=True, stable=True)
    ordered = boxes[order]
    overlaps = import_torchvision().ops.box_iou(ordered, ordered) > iou_threshold
    is_left = torch.ones(len(order), dtype=torch.bool, device=boxes.device)
    kept = []
    for place in range(len(order)):
        if is_left[place]:
            kept.append(place)
            is_left &= ~overlaps[place]
    return order[torch.tensor(kept, dtype=torch.long, device=boxes.device)]
