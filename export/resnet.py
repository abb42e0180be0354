"""The ResNet family with torchvision's state_dict keys, so that its checkpoints load without torchvision.

Sources: He et al. 2015, Deep Residual Learning, table 1; v1.5 has the stride in the 3 x 3 convolution, as torchvision.
Xie et al. 2017, Aggregated Residual Transformations (groups); Zagoruyko and Komodakis 2016, Wide Residual Networks.
"""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """What both kinds of block share: the identity that is added, projected where its shape differs.

    `groups` and `width_per_group` shape the 3 x 3 convolution of a Bottleneck; a BasicBlock has neither.
    """

    expansion: int  # output channels of a block for one of its stage's `channels`

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            projection = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(out_channels))

    def residual(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        return self.relu(self.residual(x) + identity)  # type: ignore[no-any-return]


class BasicBlock(Block):
    """Two 3 x 3 convolutions."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, stride: int, groups: int, width_per_group: int) -> None:
        super().__init__(in_channels, channels, stride)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def residual(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))  # type: ignore[no-any-return]


class Bottleneck(Block):
    """1 x 1 down, 3 x 3 in groups, 1 x 1 up to four times the stage's channels."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int, groups: int, width_per_group: int) -> None:
        super().__init__(in_channels, channels * self.expansion, stride)
        width = channels * width_per_group // 64 * groups
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels * self.expansion)

    def residual(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """Images (N, 3, H, W) to logits (N, classes), with `depths` blocks in the four stages."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        *,
        groups: int = 1,
        width_per_group: int = 64,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)

        def stage(in_channels: int, channels: int, depth: int, stride: int) -> nn.Sequential:
            first = block(in_channels, channels, stride, groups, width_per_group)
            others = (block(channels * block.expansion, channels, 1, groups, width_per_group) for _ in range(depth - 1))
            return nn.Sequential(first, *others)

        self.layer1 = stage(64, 64, depths[0], stride=1)
        self.layer2 = stage(64 * block.expansion, 128, depths[1], stride=2)
        self.layer3 = stage(128 * block.expansion, 256, depths[2], stride=2)
        self.layer4 = stage(256 * block.expansion, 512, depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.expansion, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


def resnet18(classes: int = 1000) -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), classes=classes)


def resnet34(classes: int = 1000) -> ResNet:
    return ResNet(BasicBlock, (3, 4, 6, 3), classes=classes)


def resnet50(classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), classes=classes)


def resnet101(classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 23, 3), classes=classes)


def resnet152(classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 8, 36, 3), classes=classes)


def resnext50_32x4d(classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), groups=32, width_per_group=4, classes=classes)


def wide_resnet50_2(classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), width_per_group=128, classes=classes)
