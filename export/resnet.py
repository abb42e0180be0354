"""ResNet-50 v1.5 with torchvision's state_dict keys, so that its checkpoints load without torchvision.

Source: He et al. 2015, Deep Residual Learning, table 1; v1.5 has the stride in the 3 x 3 convolution, as torchvision.
"""

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1 x 1 down, 3 x 3, 1 x 1 up to four times the width, added to the (projected) input."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            projection = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + identity)  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """Images (N, 3, H, W) to logits (N, classes), with `depths` blocks in the four stages."""

    def __init__(self, depths: tuple[int, int, int, int], classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = stage(64, 64, depths[0], stride=1)
        self.layer2 = stage(256, 128, depths[1], stride=2)
        self.layer3 = stage(512, 256, depths[2], stride=2)
        self.layer4 = stage(1024, 512, depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * Bottleneck.expansion, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


def stage(in_channels: int, width: int, depth: int, stride: int) -> nn.Sequential:
    first = Bottleneck(in_channels, width, stride)
    return nn.Sequential(first, *(Bottleneck(width * Bottleneck.expansion, width, 1) for _ in range(depth - 1)))


def resnet50() -> ResNet:
    """25,557,032 parameters, as in torchvision."""
    return ResNet((3, 4, 6, 3))
