"""The amortised router: a support set's statistics to weights of sources and of residual experts.

    rho_r = sum_g a_g(T) v(m_rg)  -  beta(T) z_r,          w = softmax(rho)

a_g(T) says how much the task is like group g of the probe set, in the base's feature space; m_rg is what source r's
features make of that group (`describe`), relative to the base; z_r is the evidence, where there is any: by how many
standard errors the source's loss is above the best one's. No parameter belongs to a source, so sources may come and go
(multi-source paper, section 6).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from smatter.algebra.layers import seeded_linear
from smatter.algebra.luck import difference_error
from smatter.algebra.simplex import straight_through_top, to_simplex
from smatter.route.descriptor import N_MOMENTS
from smatter.route.encode import ClassStatistics, Routing, Summary
from smatter.settings.training import RouterSettings

LARGEST_MOMENT = 4.0
"""Descriptors are cut off here, in standard deviations: nothing beyond was seen in training."""


class Router(nn.Module):
    """See the module's text.

    Args:
        settings: what it is made of.
        probe: class statistics of each group of the probe set, in the base's features.
        n_modules: modules of the network.
        moments: mean and standard deviation of the descriptors' moments, relative to the base, seen in training;
            (2, N_MOMENTS).
        generator: of the first weights.
    """

    center: Tensor
    scale: Tensor
    moment_scale: Tensor

    def __init__(
        self,
        settings: RouterSettings,
        probe: Sequence[ClassStatistics],
        n_modules: int,
        moments: Tensor,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.settings = settings
        prototypes = torch.cat([group.prototypes for group in probe])
        self.register_buffer("center", prototypes.mean(dim=0))
        self.register_buffer("scale", prototypes.std(dim=0).clamp(min=1e-6))
        self.register_buffer("moment_scale", moments)
        self.probe = [self._standard(group) for group in probe]
        self.summary = Summary(prototypes.shape[1], settings.width, settings.pooling, generator)
        self.sharpness = nn.Parameter(torch.tensor(10.0).log())
        n_scores = {"global": 1, "tied": settings.n_heads, "per-module": n_modules}[settings.tying]
        self.value = nn.Sequential(
            seeded_linear(N_MOMENTS, 16, generator), nn.GELU(), seeded_linear(16, n_scores, generator)
        )
        self.trust = nn.Sequential(seeded_linear(N_FACTS, 16, generator), nn.GELU(), seeded_linear(16, 2, generator))
        if settings.tying == "tied":
            first = torch.zeros(n_modules, n_scores)
            first[:, 0] = 1.0
            self.combine = nn.Parameter(first)
        if settings.n_experts:
            hidden = seeded_linear(settings.width + N_SHAPE, 32, generator)
            last = seeded_linear(32, settings.n_experts + 1, generator)
            with torch.no_grad():
                last.bias[-1] += NULL_FIRST
            self.choose = nn.Sequential(hidden, nn.GELU(), last)

    def keys(self) -> Tensor:
        """What tasks are compared with: the direction of each group of the probe set, (n_groups, width)."""
        return normalize(torch.stack([self.summary(group) for group in self.probe]), dim=1)

    def forward(
        self, task: ClassStatistics, descriptors: Tensor, losses: Tensor | None = None, keys: Tensor | None = None
    ) -> Routing:
        """Route a task.

        Args:
            task: class statistics of its support set, in the base's features.
            descriptors: of the sources less that of the base, (n_sources, n_groups, N_MOMENTS).
            losses: leave-one-out loss of each example by each source, if there is evidence; (n_sources, n_examples).
            keys: as `keys` gives them, where they are known: they change with training alone.
        """
        own = self._standard(task)
        vector = self.summary(own)
        keys = self.keys() if keys is None else keys
        attention = (self.sharpness.exp() * keys @ normalize(vector, dim=0)).softmax(dim=0)
        mean, spread = self.moment_scale
        moments = ((descriptors - mean) / spread).clamp(-LARGEST_MOMENT, LARGEST_MOMENT)
        scores = torch.einsum("g,rgk->kr", attention, self.value(moments))
        prior, trust = softplus(self.trust(_facts(own.shape_of_task, losses))).unbind()
        scores = prior * scores
        if self.settings.tying == "tied":
            scores = self.combine @ scores
        if losses is None:
            trust = torch.zeros_like(trust)
        else:
            means = losses.mean(dim=1)
            excess = ((means - means.min()) / difference_error(losses)).clamp(max=LARGEST_EXCESS).to(scores)
            trust = TRUST_SCALE * trust
            scores = scores - trust * excess
        weights = to_simplex(scores, self.settings.weight_map)
        if self.settings.max_sources:
            weights = straight_through_top(weights, self.settings.max_sources)
        choices = vector.new_zeros(1)
        if self.settings.n_experts:
            choices = self.choose(torch.cat([vector, own.shape_of_task]))
        return Routing(
            weights, scores, choices.softmax(dim=0)[:-1], expert_scores=choices, attention=attention, trust=trust
        )

    def _standard(self, classes: ClassStatistics) -> ClassStatistics:
        center, scale = self.center, self.scale
        return ClassStatistics((classes.prototypes - center) / scale, classes.spreads / scale, classes.sizes)


NULL_FIRST = 2.0
"""How much the null expert is preferred at first: experts must be worth more where they are to be used."""

N_SHAPE = 3
N_FACTS = N_SHAPE + 5
TRUST_SCALE = 2.0
"""So that evidence counts about as in evidence routing before anything was learnt."""

LARGEST_EXCESS = 30.0
"""A source that is worse than the best by this many standard errors is as bad as can be."""


def _facts(shape: Tensor, losses: Tensor | None) -> Tensor:
    """What decides how much evidence and descriptors count: the task's shape, and how the losses lie; (N_FACTS,)."""
    if losses is None:
        return torch.cat([shape, shape.new_zeros(5)])
    means, error = losses.mean(dim=1).to(shape), difference_error(losses).to(shape)
    count = torch.as_tensor(len(means)).to(shape).log()
    return torch.cat([shape, torch.stack([shape.new_tensor(1.0), means.mean(), means.min(), error.log(), count])])
