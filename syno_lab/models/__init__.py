"""Backbone networks, the slots for operators in them, and the way from a network's convolutions to slots."""

from syno_lab.models.extraction import Site, WithBias, find_convolutions, replace_modules, with_placeholders
from syno_lab.models.placeholder import KernelPack, Placeholder, placeholders, replace
from syno_lab.models.resnet import BasicBlock, CifarResNet, resnet20, resnet_tiny

__all__ = [
    "BasicBlock",
    "CifarResNet",
    "KernelPack",
    "Placeholder",
    "Site",
    "WithBias",
    "find_convolutions",
    "placeholders",
    "replace",
    "replace_modules",
    "resnet20",
    "resnet_tiny",
    "with_placeholders",
]
