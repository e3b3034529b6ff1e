"""GPT-2 and a tiny GPT: transformers that predict the next token.

Source: Radford, Wu, Child, Luan, Amodei, Sutskever, Language Models are Unsupervised Multitask Learners, 2019.
Reference implementation: ``gpt2`` of openai/gpt-2 and of Hugging Face's transformers (``GPT2LMHeadModel``). The small
model has 124,439,808 parameters too; the authors call the model 117M. The projection to queries, keys and values is a
single linear layer ``qkv``, which Syno replaces (section 9.3). Shapes: B texts, T tokens, V the vocabulary, D the
width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno_lab.errors import SpecError
from syno_lab.models.parts import check_counts

_DEVIATION = 0.02  # the standard deviation of initial weights, as in the reference


class Attention(nn.Module):
    """Attention with ``heads`` heads, [B, T, D] to [B, T, D]; if ``causal``, tokens read no later tokens."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias)
        self.out = nn.Linear(width, width, bias)
        self.heads = heads
        self.dropout = dropout
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        """Apply the attention to [B, T, D]."""
        batch, length, width = x.shape
        split = (batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = self.qkv(x).view(split).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=self.causal, dropout_p=self.dropout if self.training else 0.0
        )
        return functional.dropout(
            self.out(y.transpose(1, 2).reshape(batch, length, width)), self.dropout, self.training
        )


class Block(nn.Module):
    """Attention and two linear layers with a GELU between, each after a normalisation and with a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to [B, T, D]."""
        x = x + self.attention(self.norm1(x))
        y = functional.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.dropout(self.down(y))


class GPT(nn.Module):
    """Map tokens [B, T] of int64 to logits [B, T, V] for the token after each position; T is at most ``context``.

    The model has ``vocabulary`` tokens and ``layers`` blocks of ``width`` channels in ``heads`` heads. The last layer
    shares the embedding's weights. Weights are drawn from torch's global generator. Raises SpecError for numbers below
    1, a width that the heads do not divide, or a text longer than the context.
    """

    def __init__(
        self, vocabulary: int, *, context: int, width: int, layers: int, heads: int, dropout: float = 0.1
    ) -> None:
        super().__init__()
        check_counts("a GPT", vocabulary=vocabulary, context=context, width=width, layers=layers, heads=heads)
        if width % heads:
            raise SpecError(f"a GPT needs a width that its heads divide, found width={width} and heads={heads}")
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # If more blocks add to a shortcut, each block's last weights start smaller (section 2.3 of the report).
                adds = name.endswith(("attention.out.weight", "down.weight"))
                nn.init.normal_(parameter, std=_DEVIATION * ((2 * layers) ** -0.5 if adds else 1.0))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens [B, T] to logits [B, T, V]."""
        length = tokens.shape[1]
        if length > self.context:
            raise SpecError(f"expected texts of at most {self.context} tokens, found {length}")
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


def gpt2(
    vocabulary: int = 50_257,
    context: int = 1024,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    dropout: float = 0.1,
) -> GPT:
    """Return GPT-2 of 12 layers, 12 heads and width 768: 124,439,808 parameters (117M by its authors' count)."""
    return GPT(vocabulary, context=context, width=width, layers=layers, heads=heads, dropout=dropout)


def gpt_tiny(
    vocabulary: int = 256, context: int = 64, width: int = 128, layers: int = 4, heads: int = 4, dropout: float = 0.0
) -> GPT:
    """Return a GPT small enough for two cores: 4 layers, 4 heads, width 128; by default its tokens are bytes."""
    return GPT(vocabulary, context=context, width=width, layers=layers, heads=heads, dropout=dropout)
