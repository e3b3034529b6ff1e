"""The layers at whose sizes views show operators: one layer for all, and the layers of ResNets for a menu.

Shapes: N images, C_in and C_out channels, H rows, W columns.
"""

from collections.abc import Mapping

#: The example layer: ``layer1`` of ResNet-18 and ResNet-34 on images of 112x112. N is the batch.
LAYER: Mapping[str, int] = {"N": 1, "C_in": 64, "C_out": 64, "H": 28, "W": 28}
#: Further names of its channels, in operators with other variables.
CHANNELS = ("C", "D_in", "D_out")
#: The coefficients at the example layer: the default of the known operators, and the value there.
COEFFICIENTS: Mapping[str, tuple[int, int]] = {"g": (4, 8), "s": (2, 2)}
#: The different 3x3 convolutions of ResNet-34 (on 224x224) and ResNet-20 (on 32x32) behind their first layers: the
#: channels, rows and columns of the input, and of the output.
RESNET: Mapping[str, tuple[tuple[int, int, int], tuple[int, int, int]]] = {
    "ResNet-34 layer1": ((64, 56, 56), (64, 56, 56)),
    "ResNet-34 layer2.0.conv1": ((64, 56, 56), (128, 28, 28)),
    "ResNet-34 layer2": ((128, 28, 28), (128, 28, 28)),
    "ResNet-34 layer3.0.conv1": ((128, 28, 28), (256, 14, 14)),
    "ResNet-34 layer3": ((256, 14, 14), (256, 14, 14)),
    "ResNet-34 layer4.0.conv1": ((256, 14, 14), (512, 7, 7)),
    "ResNet-34 layer4": ((512, 7, 7), (512, 7, 7)),
    "ResNet-20 stage1": ((16, 32, 32), (16, 32, 32)),
    "ResNet-20 stage2.0.conv1": ((16, 32, 32), (32, 16, 16)),
    "ResNet-20 stage2": ((32, 16, 16), (32, 16, 16)),
    "ResNet-20 stage3.0.conv1": ((32, 16, 16), (64, 8, 8)),
    "ResNet-20 stage3": ((64, 8, 8), (64, 8, 8)),
}
