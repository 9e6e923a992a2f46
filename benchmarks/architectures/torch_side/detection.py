"""Export the two R-CNNs of DNNFusion's Table 5 with random weights, for one image of 800 x 800.

    python -m architectures.torch_side.detection FOLDER     # in benchmarks, by a Python that has PyTorch

torchvision's models with ResNet-50 and a feature pyramid, batch normalisation frozen, as trained ones have it. The
operators that a PyTorch without torchvision's compiled part lacks are defined here: an export only traces through them,
so all that counts is the shape of what they return.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

SIZE = 800
CLASSES = 91


def select_first(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """In the place of non-maximum suppression: the boxes in the order of their scores."""
    return scores.argsort(descending=True)


def mean_of_map(
    x: Tensor, boxes: Tensor, scale: float, height: int, width: int, samples: int, aligned: bool
) -> Tensor:  # fmt: skip
    """In the place of RoIAlign."""
    return x.mean() + torch.zeros(boxes.shape[0], x.shape[1], height, width)


def has_operators() -> bool:
    """Says that torchvision has all its operators."""
    return True


def assert_has_operators() -> None:
    """Accepts that torchvision lacks its compiled part."""


def has_compiled_part() -> bool:
    """Whether torchvision's compiled part fits this PyTorch; where it does not, torchvision cannot be imported."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        return False
    return True


def define_operators() -> torch.library.Library:
    """Define what the models call of torchvision's compiled part; the definitions last as long as what is returned."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    align = "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, int sampling_ratio, "
    for name, signature in (("nms", boxes), ("qnms", boxes), ("roi_align", align + "bool aligned) -> Tensor")):
        library.define(name + signature)
    library.impl("nms", select_first, "CPU")
    library.impl("roi_align", mean_of_map, "CPU")
    import torchvision  # noqa: F401
    from torchvision.ops._register_onnx_ops import _register_custom_op

    for module in ("torchvision.ops.boxes", "torchvision.ops.roi_align"):
        vars(sys.modules[module])["_assert_has_ops"] = assert_has_operators
    vars(sys.modules["torchvision.ops.roi_align"])["_has_ops"] = has_operators
    _register_custom_op()
    return library


def export(name: str, path: Path) -> None:
    """Write one of torchvision's detection models."""
    from torchvision.models import detection, resnet50
    from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
    from torchvision.ops import FrozenBatchNorm2d

    torch.manual_seed(0)
    backbone = _resnet_fpn_extractor(resnet50(norm_layer=FrozenBatchNorm2d), trainable_layers=0)
    model = getattr(detection, name)(backbone, CLASSES).eval()
    torch.onnx.export(model, ([torch.rand(3, SIZE, SIZE)],), str(path), dynamo=False, opset_version=11)


def main() -> None:
    """Command line."""
    folder = Path(sys.argv[1])
    kept = None if has_compiled_part() else define_operators()
    for file, name in (("faster_rcnn", "FasterRCNN"), ("mask_rcnn", "MaskRCNN")):
        export(name, folder / f"{file}.onnx")
    del kept


if __name__ == "__main__":
    main()
