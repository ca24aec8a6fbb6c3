"""Live backbones of every family, and how pictures and texts become their inputs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_models import save, tiny_model

from smatter.backbones.images import Preprocessing, open_image
from smatter.backbones.network import Network, chunks, load_tensors
from smatter.backbones.texts import Tokenizer, prepared_tokens
from smatter.errors import IncompatibleSource, InvalidSupport, UnsafeFile


def live(architecture: str, folder: Path) -> tuple[Network, torch.nn.Module]:
    checkpoint = save(tiny_model(architecture), folder)
    network = Network(json.loads((folder / "config.json").read_text()))
    load_tensors(network.model, checkpoint.tensors)
    return network, checkpoint.model.base_model


TOKENS = {
    "input_ids": torch.tensor([[1, 5, 9, 2], [3, 8, 0, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
}


@pytest.mark.parametrize("architecture", ["bert", "roberta", "llama", "gpt2"])
def test_texts_are_the_mean_of_their_own_tokens(architecture: str, tmp_path: Path) -> None:
    network, model = live(architecture, tmp_path)
    assert not network.takes_images
    features = network.features(TOKENS)
    alone = model(input_ids=torch.tensor([[3, 8]]))[0].mean(dim=1)
    torch.testing.assert_close(features[1:], alone, rtol=1e-4, atol=1e-5)
    assert features.shape == (2, 16)


@pytest.mark.parametrize("architecture", ["vit", "dinov2"])
def test_pictures_are_the_mean_of_their_patches(architecture: str, tmp_path: Path) -> None:
    network, model = live(architecture, tmp_path)
    pixels = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert network.takes_images
    torch.testing.assert_close(network.features({"pixel_values": pixels}), model(pixel_values=pixels)[0].mean(dim=1))


def test_maps_are_pooled_by_the_model(tmp_path: Path) -> None:
    network, model = live("convnext", tmp_path)
    pixels = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network.features({"pixel_values": pixels}), model(pixel_values=pixels).pooler_output)


def test_features_do_not_depend_on_padding_or_chunks(tmp_path: Path) -> None:
    network, _ = live("bert", tmp_path)
    wide = {name: torch.nn.functional.pad(tensor, (0, 5)) for name, tensor in TOKENS.items()}
    whole = network.features(TOKENS)
    torch.testing.assert_close(network.features(wide), whole)
    torch.testing.assert_close(torch.cat([network.features(part) for part in chunks(wide, 1)]), whole)


def test_a_network_is_float32_even_where_the_config_is_not(tmp_path: Path) -> None:
    config = tiny_model("bert").config.to_dict() | {"dtype": "bfloat16", "auto_map": {"AutoModel": "evil.Model"}}
    assert {parameter.dtype for parameter in Network(config).model.parameters()} == {torch.float32}


def test_making_a_network_leaves_the_global_randomness_alone() -> None:
    config = tiny_model("vit").config.to_dict()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = Network(config)
    assert torch.equal(torch.rand(1), expected)
    second = Network(config)
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize(
    "config", [{}, {"model_type": 3}, {"model_type": "no-such-network"}, {"model_type": "vit", "hidden_size": "wide"}]
)
def test_impossible_configs_are_refused_in_one_line(config: dict) -> None:
    with pytest.raises(IncompatibleSource) as caught:
        Network(config)
    assert "\n" not in str(caught.value)


def test_preprocessing_follows_the_checkpoint() -> None:
    config = {"model_type": "vit", "image_size": 8, "num_channels": 3}
    grey = Image.new("RGB", (5, 9), (51, 102, 255))
    plain = Preprocessing.of(config, {}).pixels([grey])
    assert plain.shape == (1, 3, 8, 8)
    torch.testing.assert_close(plain[0, :, 3, 3], torch.tensor([-0.6, -0.2, 1.0]))
    scaled = Preprocessing.of(config, {"image_mean": [0.2, 0.2, 0.5], "image_std": [0.1, 0.2, 0.5]}).pixels([grey])
    torch.testing.assert_close(scaled[0, :, 3, 3], torch.tensor([0.0, 1.0, 1.0]), atol=1e-6, rtol=0)
    one = Preprocessing.of(config | {"num_channels": 1, "image_size": [4, 6]}, {"do_normalize": False}).pixels([grey])
    assert one.shape == (1, 1, 4, 6) and 0 < float(one.mean()) < 1
    convnext = {"model_type": "convnext", "image_size": 224, "num_channels": 3}
    assert Preprocessing.of(convnext, {"size": {"shortest_edge": 20}}).height == 20


@pytest.mark.parametrize(
    ("config", "preprocessor"),
    [
        ({"image_size": "large"}, {}),
        ({"image_size": 10**9}, {}),
        ({"image_size": 8, "num_channels": 5}, {}),
        ({"image_size": 8}, {"image_mean": [0.5]}),
        ({"image_size": 8}, {"image_std": 0}),
        ({"image_size": 8}, {"image_mean": "bright"}),
    ],
)
def test_senseless_preprocessing_is_refused(config: dict, preprocessor: dict) -> None:
    with pytest.raises(IncompatibleSource) as caught:
        Preprocessing.of(config, preprocessor)
    assert "\n" not in str(caught.value)


def test_transparency_sixteen_bits_and_rotation_are_understood(tmp_path: Path) -> None:
    taste = Preprocessing(4, 4, mean=(0.0,) * 3, std=(1.0,) * 3)
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert float(taste.pixels([clear]).min()) == 1.0
    deep = Image.fromarray(np.full((4, 4), 32768, np.uint16))
    assert float(taste.pixels([deep]).mean()) == pytest.approx(0.5, abs=0.01)
    picture = Image.new("RGB", (6, 2))
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "turned.jpg", exif=exif)
    assert open_image(tmp_path / "turned.jpg").size == (2, 6)


def test_prepared_pixels_must_fit() -> None:
    taste = Preprocessing(4, 4)
    for shape in ((1, 1, 4, 4), (1, 3, 5, 4)):
        with pytest.raises(InvalidSupport):
            taste.check(torch.zeros(shape))


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "sky", "##s"]


def test_the_checkpoints_own_tokenizer_is_used(tmp_path: Path) -> None:
    config = tiny_model("bert").config.to_dict() | {"max_position_embeddings": 6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = Tokenizer.of(config, tmp_path)
    tokens = tokenizer.tokens(["red", "Blue skys", "red " * 50])
    assert tokens["input_ids"][0].tolist() == [2, 5, 3, 0, 0, 0]
    assert tokens["input_ids"][1].tolist() == [2, 6, 7, 8, 3, 0]
    assert tokens["attention_mask"].sum(dim=1).tolist() == [3, 5, 6]
    with pytest.raises(IncompatibleSource, match="token 8"):
        Tokenizer.of(config | {"vocab_size": 8}, tmp_path).tokens(["skys"])


def test_a_missing_or_broken_tokenizer_is_said_in_one_line(tmp_path: Path) -> None:
    config = tiny_model("bert").config.to_dict()
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(IncompatibleSource, match="has no tokenizer"):
        Tokenizer.of(config, tmp_path)
    (tmp_path / "tokenizer.json").write_text("{broken")
    with pytest.raises(UnsafeFile, match="not valid JSON") as caught:
        Tokenizer.of(config, tmp_path)
    assert "\n" not in str(caught.value)


def test_prepared_tokens_are_checked() -> None:
    config = {"vocab_size": 9, "pad_token_id": 0}
    assert prepared_tokens(torch.tensor([[3, 0]]), config)["attention_mask"].tolist() == [[1, 0]]
    for bad in (torch.tensor([[9]]), torch.tensor([[-1]]), torch.zeros(0, 3, dtype=torch.int64)):
        with pytest.raises(InvalidSupport):
            prepared_tokens(bad, config)
