"""Backbone networks, the slots for operators in them, and the steps from a network's layers to slots."""

from syno_lab.models.gpt import GPT, gpt2, gpt_tiny
from syno_lab.models.layers import Survey, find_convolutions, survey
from syno_lab.models.parts import AtResolution, scale_images
from syno_lab.models.placeholder import KernelPack, Placeholder, placeholders, replace
from syno_lab.models.registry import BACKBONES, Backbone, backbone
from syno_lab.models.resnet import BasicBlock, CifarResNet, resnet20, resnet_tiny
from syno_lab.models.sites import Selection, Site
from syno_lab.models.slot import Place, Slot, costs, put_in, slots, take_out, with_slots
from syno_lab.models.tokens import Tokens, tokens_for
