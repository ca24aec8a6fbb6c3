"""Names and loading, held against what transformers itself writes and loads."""

import pytest
import torch
from tiny_models import HEAD_MODELS, Checkpoint, first_output, make, save, tiny_model

from smatter.backbones.network import load_tensors, names_in_memory
from smatter.errors import IncompatibleSource


@pytest.fixture(scope="module", params=[(name, bare) for name in HEAD_MODELS for bare in (False, True)], ids=str)
def checkpoint(request, tmp_path_factory) -> Checkpoint:
    architecture, bare = request.param
    return save(tiny_model(architecture, bare=bare), tmp_path_factory.mktemp("checkpoint"))


def test_map_agrees_with_the_values_save_pretrained_wrote(checkpoint):
    written = checkpoint.tensors
    names = names_in_memory(checkpoint.model, written)
    assert names.memory.keys() == written.keys()
    assert not names.unused
    assert not names.missing
    values = checkpoint.model.state_dict()
    for disk, memory in names.memory.items():
        assert torch.equal(written[disk], values[memory]), (disk, memory)


def test_loading_gives_the_outputs_of_from_pretrained(checkpoint):
    fresh = type(checkpoint.model)(checkpoint.model.config).eval()
    load_tensors(fresh, checkpoint.tensors)
    assert torch.equal(first_output(fresh), first_output(type(fresh).from_pretrained(checkpoint.folder)))


@pytest.mark.parametrize("architecture", HEAD_MODELS)
@pytest.mark.parametrize("bare_on_disk", [True, False])
def test_checkpoint_of_the_bare_or_the_head_model_loads_into_the_other(architecture, bare_on_disk, tmp_path):
    checkpoint = save(tiny_model(architecture, bare=bare_on_disk), tmp_path)
    other = tiny_model(architecture, bare=not bare_on_disk, seed=1)
    expected, report = type(other).from_pretrained(tmp_path, output_loading_info=True)

    names = names_in_memory(other, checkpoint.tensors)
    assert set(names.missing) == set(report["missing_keys"])
    assert len(names.unused) == len(report["unexpected_keys"])

    before = {name: value.clone() for name, value in other.state_dict().items()}
    load_tensors(other, checkpoint.tensors)
    for name, value in other.state_dict().items():
        assert torch.equal(value, before[name] if name in names.missing else expected.state_dict()[name]), name


@pytest.mark.parametrize("architecture", ["vit", "dinov2", "gpt_neox"])
def test_checkpoint_already_under_names_in_memory(architecture, tmp_path):
    checkpoint = save(tiny_model(architecture), tmp_path, save_original_format=False)
    names = names_in_memory(checkpoint.model, checkpoint.tensors)
    assert dict(names.memory) == {name: name for name in checkpoint.model.state_dict()}


def test_gamma_and_beta_of_old_checkpoints_are_weight_and_bias(tmp_path):
    checkpoint = save(tiny_model("bert"), tmp_path)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in checkpoint.tensors.items()
    }
    fresh = tiny_model("bert", seed=1)
    load_tensors(fresh, old)
    assert torch.equal(first_output(fresh), first_output(checkpoint.model))

    both = old | checkpoint.tensors
    with pytest.raises(IncompatibleSource, match="remove one"):
        names_in_memory(fresh, both)


def test_model_uses_the_tensors_it_is_given(checkpoint):
    tensors = checkpoint.tensors
    fresh = type(checkpoint.model)(checkpoint.model.config).eval()
    load_tensors(fresh, tensors)
    addresses = {tensor.data_ptr() for tensor in tensors.values()}
    assert {parameter.data_ptr() for parameter in fresh.parameters()} == addresses

    second = tiny_model_like(checkpoint.model)
    for disk, memory in names_in_memory(fresh, tensors).memory.items():
        tensors[disk].copy_(second.state_dict()[memory])
    assert torch.equal(first_output(fresh), first_output(second))


def tiny_model_like(model):
    other = type(model)(model.config).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_(generator=generator)
    return other


def test_model_on_the_meta_device_needs_no_memory_of_its_own(tmp_path):
    checkpoint = save(tiny_model("vit"), tmp_path)
    with torch.device("meta"):
        empty = type(checkpoint.model)(checkpoint.model.config).eval()
    load_tensors(empty, checkpoint.tensors)
    assert torch.equal(first_output(empty), first_output(checkpoint.model))


def test_model_takes_over_the_precision(tmp_path):
    halves = {name: tensor.bfloat16() for name, tensor in save(tiny_model("vit"), tmp_path).tensors.items()}
    model = tiny_model("vit", seed=1)
    load_tensors(model, halves)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_frozen_parameters_and_the_mode_stay(tmp_path):
    checkpoint = save(tiny_model("vit"), tmp_path)
    model = tiny_model("vit", seed=1).train()
    model.vit.requires_grad_(False)
    load_tensors(model, checkpoint.tensors)
    assert model.training
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trainable == {"classifier.weight", "classifier.bias"}


@pytest.mark.parametrize("kept", ["model.embed_tokens.weight", "lm_head.weight"])
def test_tied_parameters_stay_tied_whichever_name_is_on_disk(kept, tmp_path):
    checkpoint = save(tiny_model("llama-tied"), tmp_path)
    tensors = checkpoint.tensors
    tensors[kept] = tensors.pop("model.embed_tokens.weight")
    model = tiny_model("llama-tied", seed=1)
    load_tensors(model, tensors)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(first_output(model), first_output(checkpoint.model))


def test_tied_parameters_must_get_one_value(tmp_path):
    tied = tiny_model("llama-tied")
    tensors = save(tied, tmp_path).tensors
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    load_tensors(tied, tensors)
    assert tied.lm_head.weight is tied.model.embed_tokens.weight

    tensors["lm_head.weight"][0, 0] += 1
    with pytest.raises(IncompatibleSource, match="tie_word_embeddings=false"):
        load_tensors(tied, tensors)


def test_incomplete_or_misshapen_checkpoint_leaves_the_model_as_it_was(tmp_path):
    tensors = save(tiny_model("vit"), tmp_path).tensors
    model = tiny_model("vit", seed=1)
    before = first_output(model)

    wrong_shape = tensors | {"classifier.bias": torch.zeros(4)}
    with pytest.raises(IncompatibleSource, match=r"'classifier.bias' has shape \[4\]"):
        load_tensors(model, wrong_shape)

    del tensors["vit.encoder.layer.1.layernorm_after.bias"]
    with pytest.raises(IncompatibleSource, match=r"'vit.layers.1.layernorm_after.bias'"):
        load_tensors(model, tensors)
    assert torch.equal(first_output(model), before)


def test_experts_that_are_merged_in_memory_are_refused(tmp_path):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 10}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 2}
    checkpoint = save(make("MixtralForCausalLM", "MixtralConfig", **sizes, **heads)(), tmp_path)
    with pytest.raises(IncompatibleSource, match=r"experts.0.*from_pretrained"):
        names_in_memory(checkpoint.model, checkpoint.tensors)


class TwoTowers(torch.nn.Module):
    """A network that is no transformers model, with one module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.left = torch.nn.Linear(3, 3)
        self.right = self.left
        self.norm = torch.nn.LayerNorm(3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.norm(self.left(values) - 2 * self.right(values))


def test_any_other_module_has_one_name_for_disk_and_memory():
    source, target = TwoTowers(), TwoTowers()
    tensors = {name: tensor for name, tensor in source.state_dict().items() if not name.startswith("left")}
    load_tensors(target, tensors | {"unrelated": torch.zeros(1)})
    values = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(target(values), source(values))
    assert names_in_memory(target, [*tensors, "unrelated"]).unused == ("unrelated",)

    with pytest.raises(IncompatibleSource, match=r"no 'norm.weight' and 1 more"):
        names_in_memory(target, ["right.weight", "right.bias"])
