"""Printed figures: DNNFusion's Table 5 (Niu et al., PLDI 2021), and AGO's Fig. 14 (Xu et al., INFOCOM 2023)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """A row of Table 5: layers of the original, and as fused by TVM (None: not supported) and by DNNFusion; megabytes
    of intermediate results before and after."""

    label: str
    original: int
    tvm: int | None
    dnnf: int
    before: int
    after: int

    @property
    def rate(self) -> float:
        """DNNFusion's fusion rate: original layers over fused ones."""
        return self.original / self.dnnf

    @property
    def ratio(self) -> float:
        """What DNNFusion leaves of the bytes of intermediate results."""
        return self.after / self.before


TABLE5: dict[str, Printed] = {
    "efficientnet_b0": Printed("EfficientNet-B0", 309, 195, 97, 108, 26),
    "vgg16": Printed("VGG-16", 51, 22, 17, 161, 52),
    "mobilenet_ssd": Printed("MobileNetV1-SSD", 202, 124, 71, 110, 37),
    "yolo_v4": Printed("YOLO-V4", 398, 192, 135, 329, 205),
    "c3d": Printed("C3D", 27, 27, 16, 195, 90),
    "s3d": Printed("S3D", 272, None, 98, 996, 356),
    "unet": Printed("U-Net", 292, 232, 82, 312, 158),
    "faster_rcnn": Printed("Faster R-CNN", 3640, None, 942, 914, 374),
    "mask_rcnn": Printed("Mask R-CNN", 3999, None, 981, 1524, 543),
    "tinybert": Printed("TinyBERT", 366, 304, 74, 183, 55),
    "distilbert": Printed("DistilBERT", 457, 416, 109, 540, 197),
    "albert": Printed("ALBERT", 936, 746, 225, 1260, 320),
    "bert_base": Printed("BERT-base", 976, 760, 216, 915, 196),
    "mobilebert": Printed("MobileBERT", 2387, 1678, 510, 744, 255),
    "gpt2": Printed("GPT-2", 2533, 2047, 254, 1389, 356),
}
"""By name; the megabytes of VGG-16 are read as 161 where the scan has 161I."""
EXPORTED = ("faster_rcnn", "mask_rcnn")
"""These have no builder: architectures/torch_side/detection.py exports them from torchvision."""


@dataclass(frozen=True)
class PrintedBalance:
    """Sub-graphs of MobileViT by Eq. (1) of AGO: how many, how many of them trivial (None: not printed), mean and
    median weight, Jain's fairness index."""

    count: int
    trivial: int | None
    mean: float
    median: float
    jain: float


FIG14: dict[str, PrintedBalance] = {
    "fuseops": PrintedBalance(259, 105, 138, 23, 0.19),
    "ago": PrintedBalance(82, None, 437, 350, 0.55),
}
"""Relay's fusion, which FuseOps is, and AGO's clusters."""
