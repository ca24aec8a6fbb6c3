"""Statistics matching: a corrected mixture shows the means and deviations of its sources, by an independent count."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_libraries import LAYERS, pixels_support, random_library, texts_support
from torch import nn
from transformers import LlamaConfig, LlamaModel

import smatter
from smatter.backbones.network import Network, load_tensors
from smatter.errors import InvalidSettings, InvalidSupport, InvalidWeights
from smatter.library.library import Library
from smatter.live import matching
from smatter.live.matching import match_statistics
from smatter.live.mixture import LiveMixture

WEIGHTS = (0.5, 0.3, 0.2)
Statistics = dict[str, tuple[np.ndarray, np.ndarray]]


def example_inputs(library: Library) -> list:
    """Texts of different lengths, or pixels."""
    if "vocab_size" not in library.base.config:
        return list(pixels_support(n_shot=6).inputs)
    return [f"{'filler1 ' * (n % 4)}{text}" for n, text in enumerate(texts_support("law").inputs)]


def mixture_of(library: Library) -> smatter.Mixture:
    return smatter.Mixture.of(dict(zip(library.names, WEIGHTS, strict=True)))


def counted(library: Library, what: smatter.Mixture | smatter.Recipe, inputs: list) -> Statistics:
    """Mean and deviation of each channel of each layer that has a bias, inputs passed one by one, without padding."""
    network = Network(library.base.config)
    load_tensors(network.model, library.compose(what).tensors())
    prepare, seen = LiveMixture(library).prepare, {}
    for name, layer in network.model.named_modules():
        is_fresh = name.startswith("pooler")  # not in every checkpoint, and no part of the features
        if not is_fresh and isinstance(layer, nn.LayerNorm | nn.Linear | nn.Conv2d) and layer.bias is not None:

            def keep(layer: nn.Module, _: object, output: torch.Tensor, name: str = name) -> None:
                axis = output.shape[1:].index(len(layer.bias)) + 1
                seen.setdefault(name, []).append(np.moveaxis(output.numpy(), axis, -1).reshape(-1, len(layer.bias)))

            layer.register_forward_hook(keep)
    kind = "images" if network.takes_images else "texts"
    for each in inputs:
        with torch.no_grad():
            network.features(prepare(torch.stack([each]) if network.takes_images else [each], kind))
    rows = {name: np.concatenate(parts).astype(np.float64) for name, parts in seen.items()}
    return {name: (each.mean(axis=0), each.std(axis=0)) for name, each in rows.items()}


@pytest.fixture(params=["tiny_library", "vit_library", "bert_library"])
def library(request: pytest.FixtureRequest) -> Library:
    return request.getfixturevalue(request.param)


def test_statistics_are_the_weighted_means_of_the_sources(library: Library, monkeypatch) -> None:
    monkeypatch.setattr(matching, "LARGEST_RATIO", 1e9)  # norms of random networks have weights near zero
    inputs, mixture = example_inputs(library), mixture_of(library)
    sources = [counted(library, smatter.Mixture.of({name: 1.0}), inputs) for name in library.names]
    plain, matched = (
        counted(library, what, inputs) for what in (mixture, smatter.match_mixture(library, mixture, inputs))
    )
    assert len(matched) > 10
    for name, (mean, deviation) in matched.items():
        targets = [sum(w * each[name][i] for w, each in zip(WEIGHTS, sources, strict=True)) for i in (0, 1)]
        np.testing.assert_allclose(mean, targets[0], atol=1e-5, err_msg=name)
        if "norm" in name.lower():
            np.testing.assert_allclose(deviation, targets[1], atol=1e-5, err_msg=name)
            assert not np.allclose(plain[name][1], targets[1], atol=1e-5), "it was so without matching"


def test_weights_of_a_module_make_its_own_targets(tiny_library: Library) -> None:
    inputs, names = example_inputs(tiny_library), tiny_library.names
    first, *rest = tiny_library.partition.modules
    mixture = smatter.Mixture.per_module({first: {names[0]: 1.0}} | {each: {names[1]: 1.0} for each in rest})
    own = {name: counted(tiny_library, smatter.Mixture.of({name: 1.0}), inputs) for name in names[:2]}
    matched = counted(tiny_library, smatter.match_mixture(tiny_library, mixture, inputs), inputs)
    for name, (mean, _) in matched.items():
        target, _ = own[names[0 if name.startswith("embeddings") else 1]][name]
        np.testing.assert_allclose(mean, target, atol=1e-5, err_msg=name)


def test_one_source_needs_no_correction(tiny_library: Library) -> None:
    live, alone = LiveMixture(tiny_library), smatter.Mixture.of({"s0": 0.0, "s1": 1.0})
    assert match_statistics(live, alone, live.network.random_inputs(4)).tensors == ()
    with pytest.raises(InvalidSettings, match="'s1' has all the weight"):
        smatter.match_mixture(tiny_library, alone, example_inputs(tiny_library))


def test_only_vectors_are_corrected(library: Library) -> None:
    residual = smatter.match_mixture(library, mixture_of(library), example_inputs(library)).residual
    assert residual is not None and {values.ndim for values in residual.dense.values()} == {1}


def test_a_network_without_biases_is_refused(tmp_path: Path) -> None:
    config = LlamaConfig(**LAYERS, vocab_size=30, num_key_value_heads=1)
    live = LiveMixture(random_library(tmp_path, LlamaModel(config)))
    with pytest.raises(InvalidSettings, match="has a bias"):
        match_statistics(live, mixture_of(live.library), live.network.random_inputs(4))


def test_the_order_of_sources_changes_no_bit(tiny_library: Library) -> None:
    live = LiveMixture(tiny_library)
    inputs = live.network.random_inputs(8)
    weights = list(zip(tiny_library.names, WEIGHTS, strict=True))
    one, other = (match_statistics(live, smatter.Mixture.of(dict(w)), inputs) for w in (weights, weights[::-1]))
    assert one.n_nonzero > 0 and one.tensors == other.tensors
    for name, values in one.dense.items():
        np.testing.assert_array_equal(values, other.dense[name])


def test_a_matched_recipe_is_kept_to_the_bit(tiny_library: Library, tmp_path: Path) -> None:
    recipe = smatter.match_mixture(tiny_library, mixture_of(tiny_library), example_inputs(tiny_library))
    smatter.write_recipe(tmp_path / "matched.safetensors", recipe)
    again = smatter.read_recipe(tmp_path / "matched.safetensors")
    assert tiny_library.result_digest(again) == tiny_library.result_digest(recipe)
    assert tiny_library.result_digest(again) != tiny_library.result_digest(tiny_library.recipe(recipe.mixture))


def test_what_cannot_be_matched_is_refused(tiny_library: Library) -> None:
    mixture = mixture_of(tiny_library)
    with pytest.raises(InvalidSupport, match="no inputs"):
        smatter.match_mixture(tiny_library, mixture, [])
    with pytest.raises(InvalidSupport, match="takes images, not texts"):
        smatter.match_mixture(tiny_library, mixture, ["a text"])
    arithmetic = smatter.Mixture.task_arithmetic("s0", {"s1": 1.0, "s2": 0.5})
    with pytest.raises(InvalidWeights, match="task arithmetic"):
        smatter.match_mixture(tiny_library, arithmetic, example_inputs(tiny_library))
