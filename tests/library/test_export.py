"""Exports that transformers loads, and merges shared with mergekit."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from small_networks import make_tensors, write_checkpoint
from test_composing import load_source, same_bits

from smatter.cli.main import main
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidRecipe
from smatter.library.edit import add_source, init_library
from smatter.library.export import export
from smatter.library.library import Library
from smatter.library.mergekit import read_merge, write_merge

MakeLibrary = Callable[..., Library]
pytestmark = pytest.mark.filterwarnings("ignore:numpy.core is deprecated")  # said by mergekit


def models() -> dict[str, Callable[[], Any]]:
    import transformers as t

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    vision = {"image_size": 16, "patch_size": 4, "num_labels": 3}
    llama = small | {"vocab_size": 60, "num_key_value_heads": 1, "pad_token_id": 0}
    return {
        "bert": lambda: t.BertForSequenceClassification(t.BertConfig(**small, vocab_size=60, num_labels=3)),
        "vit": lambda: t.ViTForImageClassification(t.ViTConfig(**small, **vision)),
        "convnext": lambda: t.ConvNextForImageClassification(
            t.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 2], num_stages=2, patch_size=2, num_labels=3)
        ),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**llama, tie_word_embeddings=True)),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=60, bos_token_id=1, eos_token_id=2)
        ),
    }


def outputs(model: Any, family: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    model.eval()
    with torch.no_grad():
        if family in ("vit", "convnext"):
            return model(pixel_values=torch.randn(2, 3, 16, 16, generator=generator).to(model.dtype))[0]
        return model(input_ids=torch.randint(3, 60, (2, 7), generator=generator))[0]


@pytest.mark.parametrize("family", ["bert", "vit", "convnext", "llama", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_from_pretrained_loads_an_export(tmp_path: Path, family: str, dtype: torch.dtype) -> None:
    import transformers

    torch.manual_seed(0)
    base = models()[family]().to(dtype)
    base.save_pretrained(tmp_path / "base")
    library = init_library(tmp_path / "library", tmp_path / "base")
    members = [base]
    for name in ("a", "b"):
        member = copy.deepcopy(base)
        with torch.no_grad():
            for parameter in member.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
        member.save_pretrained(tmp_path / name, max_shard_size="20kB" if name == "b" else "5GB")
        library, _ = add_source(tmp_path / "library", tmp_path / name)
        members.append(member)
    export(library, Mixture.of({"base": 0.5, "a": 0.25, "b": 0.25}), tmp_path / "out")

    loaded = type(base).from_pretrained(tmp_path / "out", dtype=dtype)
    expected = copy.deepcopy(base)
    with torch.no_grad():
        for target, *parts in zip(expected.parameters(), *(member.parameters() for member in members), strict=True):
            target.copy_(0.5 * parts[0].float() + 0.25 * parts[1].float() + 0.25 * parts[2].float())
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(outputs(loaded, family), outputs(expected, family), rtol=tolerance, atol=tolerance)
    bare = transformers.AutoModel.from_pretrained(tmp_path / "out", dtype=dtype)
    assert torch.isfinite(outputs(bare, family)).all()


def test_an_export_replaces_another_only_when_asked(make_library: MakeLibrary, tmp_path: Path, capsys) -> None:
    library, out = make_library(), tmp_path / "out"
    words = ["compose", str(library.folder), "-o", str(out), "--weights"]
    assert main([*words, "a=1"]) == 0
    before = (out / "model.safetensors").read_bytes()
    assert main([*words, "b=1"]) == 2
    assert "--replace" in capsys.readouterr().err
    assert (out / "model.safetensors").read_bytes() == before
    assert main([*words, "b=1", "--replace"]) == 0
    assert same_bits(load_file(out / "model.safetensors"), load_source(library, "b"))
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_mergekit_reads_what_is_written_and_agrees(make_library: MakeLibrary, tmp_path: Path) -> None:
    from mergekit.config import MergeConfiguration

    library = make_library()
    rows = {module: {"a": 0.2 + 0.1 * i, "b": 0.8 - 0.1 * i} for i, module in enumerate(library.partition.modules)}
    mixture = Mixture.per_module(rows)
    text = write_merge(library, mixture)
    MergeConfiguration.model_validate(yaml.safe_load(text))
    (tmp_path / "merge.yaml").write_text(text)
    again = read_merge(tmp_path / "merge.yaml", library)
    first = {name: value.clone() for name, value in library.compose(mixture).tensors().items()}
    assert same_bits(first, library.compose(again).tensors())


@pytest.mark.parametrize("method", ["linear", "task_arithmetic"])
def test_a_mergekit_merge_gives_what_mergekit_gives(tmp_path: Path, method: str) -> None:
    from mergekit.config import MergeConfiguration
    from mergekit.merge import run_merge
    from mergekit.options import MergeOptions

    torch.manual_seed(0)
    base = models()["llama"]()
    for name in ("base", "a", "b"):
        member = copy.deepcopy(base)
        with torch.no_grad():
            for parameter in member.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
        member.save_pretrained(tmp_path / name)
    library = init_library(tmp_path / "library", tmp_path / "base")
    for name in ("a", "b"):
        library, _ = add_source(tmp_path / "library", tmp_path / name)
    parameters = {"normalize": True} if method == "linear" else {"lambda": 0.7}
    mlp = [{"filter": ".mlp.", "value": 2.0}, {"filter": "post_attention", "value": 2.0}, {"value": 0.5}]
    config = {
        "merge_method": method,
        "models": [
            {"model": str(tmp_path / "a"), "parameters": {"weight": mlp}},
            {"model": str(tmp_path / "b"), "parameters": {"weight": 1.5}},
        ],
        "parameters": parameters,
        "dtype": "float32",
    } | ({"base_model": str(tmp_path / "base")} if method == "task_arithmetic" else {})
    (tmp_path / "merge.yaml").write_text(yaml.safe_dump(config))
    run_merge(MergeConfiguration.model_validate(config), str(tmp_path / "peer"), MergeOptions(copy_tokenizer=False))
    assert (
        main(["compose", str(library.folder), "--recipe", str(tmp_path / "merge.yaml"), "-o", str(tmp_path / "out")])
        == 0
    )
    peer, ours = (load_file(tmp_path / name / "model.safetensors") for name in ("peer", "out"))
    assert peer.keys() >= ours.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, peer[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"merge_method": "ties"}, "not linear or task_arithmetic"),
        ({"slices": []}, "'slices'"),
        ({"tokenizer_source": "union"}, "'tokenizer_source'"),
        ({"dtype": "bfloat16"}, "not the base's"),
        ({"models": [{"model": "elsewhere", "parameters": {"weight": 1}}]}, "not in the library"),
        ({"models": [{"model": "a", "parameters": {"weight": [0.1, 0.9]}}]}, "gradient"),
        ({"models": [{"model": "a", "parameters": {"weight": 1, "density": 0.5}}]}, "'density'"),
        ({"models": [{"model": "a", "parameters": {"weight": [{"filter": "query.w", "value": 1}, {"value": 2}]}},
                     {"model": "b", "parameters": {"weight": 1}}]}, "within module"),
    ],
)  # fmt: skip
def test_merges_without_a_counterpart_are_refused(make_library: MakeLibrary, tmp_path: Path, change, words) -> None:
    library = make_library()
    config = {"merge_method": "linear", "models": [{"model": "a", "parameters": {"weight": 1.0}}]} | change
    (tmp_path / "merge.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(InvalidRecipe, match=words):
        read_merge(tmp_path / "merge.yaml", library)


def test_stored_sources_and_residuals_have_no_mergekit_form(make_library: MakeLibrary, tmp_path: Path) -> None:
    library = make_library()
    folder = write_checkpoint(tmp_path / "d", make_tensors(4, near=make_tensors(0)))
    library, _ = add_source(library.folder, folder, form="delta")
    with pytest.raises(InvalidRecipe, match="add it whole"):
        write_merge(library, Mixture.of({"d": 1.0}))
