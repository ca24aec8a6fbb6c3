"""Statistics matching: the mixture's activations get the means and deviations that they have in its sources.

Where sources disagree, mixing their weights averages signals away: activations of the mixture vary less than those of
the sources, and around other means (REPAIR, Jordan et al., 2022). A normalisation has a weight and a bias for each
channel of its output, which can give the channel any mean and deviation:

    y'_c = (y_c - mean_c) target deviation_c / deviation_c + target mean_c

Linear maps and convolutions have a bias, which can give the mean. Matching their deviations too would change every
row of their matrices, which makes the residual as large as the network (docs/composing.md has what that is worth).

Targets are weighted means of what the sources show on the same inputs. Layers are corrected in the order in which they
compute, so that each is corrected on what the corrected layers before it give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from smatter.backbones.network import Inputs
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.errors import InvalidSettings, InvalidSupport, InvalidWeights
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.tasks.given import check_inputs, gather, several

NORMS = (nn.LayerNorm, nn.BatchNorm2d, nn.GroupNorm)
LAYERS = (*NORMS, nn.Linear, nn.Conv2d)
"""What is corrected, where it has a bias and computes once in a pass."""

CHANNELS_FIRST = (nn.BatchNorm2d, nn.GroupNorm, nn.Conv2d)

LARGEST_RATIO = 10.0
"""Of deviations: where a channel of the mixture hardly varies, a larger one is noise."""


def match_mixture(library: Library, mixture: Mixture, inputs: Any) -> Recipe:
    """A recipe of a mixture and a residual that matches its statistics to its sources'.

    Args:
        library: the sources.
        mixture: weights of at least two sources, on the simplex.
        inputs: pictures, texts, or a prepared tensor, as `predict` takes them but that strings are texts; without
            labels, of the kind that the model is meant for. Of many, as many as one pass takes are used, evenly spread.
    """
    if len(mixture.active_sources) < 2:
        raise InvalidSettings(
            f"{mixture.active_sources[0]!r} has all the weight, so there is nothing to match: compose without matching"
        )
    values, kind = gather(several(inputs))
    if not len(values):
        raise InvalidSupport("there are no inputs to match statistics on: give some")
    check_inputs(values, kind)
    live = LiveMixture(library.only(mixture.active_sources))
    chosen = torch.linspace(0, len(values) - 1, min(len(values), live.n_at_once)).long()
    values = values[chosen] if isinstance(values, Tensor) else tuple(values[row] for row in chosen.tolist())
    return library.recipe(mixture, match_statistics(live, mixture, live.prepare(values, kind)))


def match_statistics(live: LiveMixture, mixture: Mixture, inputs: Inputs) -> Residual:
    """What must be added to a mixture so that its statistics are its sources'; a pass of each source, and of itself.

    Args:
        live: the network; it is left with the mixture.
        mixture: on the simplex; of one source alone nothing is corrected.
        inputs: what statistics are taken of, passed through all at once.
    """
    if mixture.rule != "simplex":
        raise InvalidWeights(
            "coefficients of task arithmetic are no weights to match statistics by: use weights on the simplex"
        )
    if len(mixture.active_sources) < 2:
        return Residual()
    targets = _targets(live, mixture, inputs)
    live.compose(mixture)
    _watch(live, targets, inputs, lambda layer, output, own: _correct(layer, output, own, targets[layer]))
    names = [name for name, (layer, _) in live.leaves.items() if layer in targets and len(live.specs[name].shape) == 1]
    corrected = {name: live.parameters[name].detach().clone() for name in names}
    live.compose(mixture)
    added = {name: values - live.parameters[name].detach() for name, values in corrected.items()}
    return Residual(dense={name: values.numpy() for name, values in added.items() if values.any()})


def _targets(live: LiveMixture, mixture: Mixture, inputs: Inputs) -> dict[nn.Module, Tensor]:
    """Deviation and mean of each channel, (2, n_channels), of each layer that can be corrected."""
    names: dict[nn.Module, dict[str, str]] = {}
    for disk, (layer, name) in live.leaves.items():
        if isinstance(layer, LAYERS):
            names.setdefault(layer, {})[name] = disk
    blocks = {layer: live.library.partition.module_of(own["bias"]) for layer, own in names.items() if len(own) == 2}
    if not blocks:
        raise InvalidSettings("no layer of this network has a bias that could be corrected: compose without matching")
    targets: dict[nn.Module, Tensor] = {}
    digests, weights = live.library.manifest.digests, mixture.mean_weights
    for source in sorted(mixture.active_sources, key=lambda name: (digests[name], weights[name])):  # sums keep bits
        for layer, own in _statistics(live, source, blocks, inputs).items():
            share = mixture.coefficient(blocks[layer], source) * own
            targets[layer] = targets[layer] + share if layer in targets else share
    return targets


def _statistics(live: LiveMixture, source: str, layers: Iterable[nn.Module], inputs: Inputs) -> dict[nn.Module, Tensor]:
    """What a source alone shows; a layer that computes several times in a pass has no one mean, and is left out."""
    found: dict[nn.Module, list[Tensor]] = {}
    live.compose(Mixture.of({source: 1.0}))
    _watch(live, layers, inputs, lambda layer, _, own: found.setdefault(layer, []).append(own))
    return {layer: own for layer, (own, *more) in found.items() if not more}


def _watch(
    live: LiveMixture, layers: Iterable[nn.Module], inputs: Inputs, see: Callable[[nn.Module, Tensor, Tensor], Any]
) -> None:
    """Pass inputs through; each layer's output and its statistics are shown, and what is returned replaces it."""
    mask = inputs["attention_mask"].bool() if "attention_mask" in inputs else None

    def hook(layer: nn.Module, _: Any, output: Tensor) -> Any:
        rows = output.movedim(_axis(layer), -1)
        if mask is not None and rows.shape[:-1] == mask[:, : rows.shape[1]].shape:  # padding is no text
            rows = rows[mask[:, : rows.shape[1]]]
        rows = rows.flatten(0, -2)
        mean = rows.mean(dim=0)
        deviation = (rows - mean).square_().mean(dim=0).sqrt()  # several times as fast as torch.std_mean
        return see(layer, output, torch.stack([deviation, mean]))

    hooks = [layer.register_forward_hook(hook) for layer in layers]
    try:
        with torch.no_grad():
            live.network.features(inputs)
    finally:
        for each in hooks:
            each.remove()


def _correct(layer: nn.Module, output: Tensor, own: Tensor, target: Tensor) -> Tensor:
    """Give a layer's output the means of the target and, if it is a normalisation, the deviations."""
    (deviation, mean), (wanted, middle), axis = own, target, _axis(layer)
    ratio = torch.ones_like(mean)
    if isinstance(layer, NORMS):
        ratio = torch.where(deviation > 0, wanted / deviation, ratio).clamp(1 / LARGEST_RATIO, LARGEST_RATIO)
        layer.get_parameter("weight").mul_(ratio)
    shift = middle - ratio * mean
    layer.get_parameter("bias").mul_(ratio).add_(shift)
    corrected: Tensor = ratio * output.movedim(axis, -1) + shift
    return corrected.movedim(-1, axis)


def _axis(layer: nn.Module) -> int:
    """Of the channels in a layer's output."""
    first = isinstance(layer, CHANNELS_FIRST) or getattr(layer, "data_format", "") == "channels_first"
    return 1 if first else -1
