"""The transformers: they predict from the past alone, and compute what the reference implementation computes."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, ResNetConfig, ResNetForImageClassification

from syno_lab import operators
from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.models import (
    GPT,
    Selection,
    Tokens,
    backbone,
    gpt_tiny,
    placeholders,
    put_in,
    survey,
    take_out,
    tokens_for,
)
from syno_lab.models.gpt import Attention

QKV = Selection(kinds=("linear",), names=("*.qkv",))
SMALL = {"vocab_size": 50, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4}
TOKENS = {"bos_token_id": None, "eos_token_id": None}


def dense() -> Operator:
    """Y[n, o] = sum_c X[n, c] W[c, o] for any number of positions."""
    build = Build("[N, C_in]", "[N, C_out]", ["N", "C_in", "C_out"], fixed_io_pairs=[(0, 0)])
    n, o = build.output
    c = build.reduce("C_in")
    build.contract(share=[c], give=[o])
    return build.finish(n, c)


def reference() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(**SMALL, **TOKENS)).eval()


def test_it_computes_what_transformers_gpt2_computes():
    theirs = reference()
    ours = GPT(50, context=16, width=32, layers=2, heads=4).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.1)
        ours.tokens.weight.copy_(theirs.transformer.wte.weight)
        ours.positions.weight.copy_(theirs.transformer.wpe.weight)
        ours.norm.load_state_dict(theirs.transformer.ln_f.state_dict())
        for mine, other in zip(ours.blocks, theirs.transformer.h, strict=True):
            mine.norm1.load_state_dict(other.ln_1.state_dict())
            mine.norm2.load_state_dict(other.ln_2.state_dict())
            for linear, transposed in (
                (mine.attention.qkv, other.attn.c_attn),
                (mine.attention.out, other.attn.c_proj),
                (mine.up, other.mlp.c_fc),
                (mine.down, other.mlp.c_proj),
            ):
                linear.weight.copy_(transposed.weight.T)
                linear.bias.copy_(transposed.bias)
        tokens = torch.randint(0, 50, (3, 16))
        torch.testing.assert_close(ours(tokens), theirs(input_ids=tokens).logits)


def test_gpt2_has_the_parameters_and_flops_of_transformers_gpt2():
    with torch.device("meta"):
        net = GPT2LMHeadModel(GPT2Config())
    seen = survey(net, {"input_ids": torch.zeros(1, 1024, dtype=torch.int64)})
    assert (seen.params, seen.flops) == (backbone("gpt2").params, backbone("gpt2").flops)


def test_resnet18_has_the_parameters_and_flops_of_transformers_resnet():
    config = ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=1000,
    )
    with torch.device("meta"):
        net = ResNetForImageClassification(config)
    seen = survey(net, {"pixel_values": torch.zeros(1, 3, 224, 224)})
    assert (seen.params, seen.flops) == (backbone("resnet18").params, backbone("resnet18").flops)
    sites = seen.select(Selection(leave=("*embedder*",)))
    assert [site.mapping for site in sites] == [
        site.mapping for site in backbone("resnet18").survey().select(backbone("resnet18").selection)
    ]


def test_a_model_of_transformers_is_a_users_own_model():
    net = reference()
    tokens = torch.randint(0, 50, (2, 16))
    before = net(input_ids=tokens).logits
    seen = survey(net, {"input_ids": tokens[:1]})
    reasons = {row["name"]: row["reason"] for row in seen.rows(Selection(kinds=("linear",)))}
    assert reasons["lm_head"] == "it shares its weight with transformer.wte"
    sites = seen.select(Selection(kinds=("linear",), names=("*.c_attn",)))
    assert [site.mapping for site in sites] == [{"N": 16, "C_in": 32, "C_out": 96}] * 2
    filled, places = put_in(net, sites, operators.grouped_linear())
    assert [(place.params, place.flops) for place in places] == [(32 * 96 // 4 + 96, 2 * 16 * 32 * 96 // 4)] * 2
    after = filled(input_ids=tokens).logits
    assert after.shape == before.shape
    assert not torch.allclose(after, before)
    after.sum().backward()
    assert all(parameter.grad is not None for _, slot in placeholders(filled) for parameter in slot.parameters())
    torch.testing.assert_close(take_out(filled)(input_ids=tokens).logits, before, rtol=0, atol=0)


@pytest.mark.parametrize("operator", [None, dense, operators.grouped_linear])
def test_a_token_is_predicted_from_the_past_alone(operator):
    """With an operator in the place of the projections too, because positions take part in nothing."""
    known = backbone("gpt_tiny")
    net = known.build(size=12)
    if operator is not None:
        sites = survey(net, known.example(size=12)).select(QKV)
        net, _ = put_in(net, sites, operator())
    net.eval()
    tokens = torch.randint(0, 256, (1, 12))
    changed = tokens.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 256
    with torch.no_grad():
        first, second = net(tokens), net(changed)
        torch.testing.assert_close(first[:, :7], second[:, :7])
        assert not torch.allclose(first[:, 7:], second[:, 7:])
        # Shorter texts need no other operator.
        torch.testing.assert_close(net(tokens[:, :5]), first[:, :5])


def test_an_operator_that_might_mix_positions_is_refused():
    known = backbone("gpt_tiny")
    net = known.build(size=8, device="meta")
    sites = survey(net, known.example(size=8)).select(QKV)
    with pytest.raises(
        SpecError, match=r"fits none of them: blocks\.0\.attention\.qkv: expected .* first axis takes part"
    ):
        put_in(net, sites, operators.matmul())


def test_the_dense_operator_with_the_old_weights_gives_the_old_network():
    known = backbone("gpt_tiny")
    net = known.build(size=8).eval()
    filled, _ = put_in(net, survey(net, known.example(size=8)).select(QKV), dense())
    with torch.no_grad():
        for (_, slot), block in zip(placeholders(filled), net.blocks, strict=True):
            (weight,) = slot.parameters()
            weight.copy_(block.attention.qkv.weight.T)
        tokens = torch.randint(0, 256, (2, 8))
        torch.testing.assert_close(filled(tokens), net(tokens))


def test_weights_start_small_and_smaller_on_the_shortcuts():
    net = gpt_tiny()
    assert net.tokens.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert net.blocks[0].down.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.05)
    assert not net.blocks[0].up.bias.any()


def test_dropout_is_for_training_alone():
    attention = Attention(8, 2, 0.5)
    x = torch.randn(1, 4, 8)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_wrong_sizes_are_refused():
    with pytest.raises(SpecError, match="expected texts of at most 64 tokens, found 65"):
        gpt_tiny()(torch.zeros(1, 65, dtype=torch.int64))
    with pytest.raises(SpecError, match="a width that its heads divide, found width=10 and heads=3"):
        GPT(5, context=4, width=10, layers=1, heads=3)
    with pytest.raises(SpecError, match="a GPT needs layers as a whole number from 1 up, found 0"):
        GPT(5, context=4, width=10, layers=0, heads=2)


def test_a_gpt_learns_a_text_by_heart():
    torch.manual_seed(0)
    text = "to be or not to be"
    tokens = tokens_for(text, "characters")
    net = GPT(tokens.size, context=32, width=32, layers=1, heads=2, dropout=0.0)
    data = torch.from_numpy(tokens.encode(text))[None]
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(net(data[:, :-1])[0], data[0, 1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert Tokens.decode(tokens, net(data[:, :-1])[0].argmax(-1).numpy()) == text[1:]
