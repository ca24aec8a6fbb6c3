"""What `sources_experts.py` asks of one task: mixtures of weights and predictions, experts open and closed, peers."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import before
from common import ROOT
from signs_tasks import Scores, live, right, tasks, trained

sys.path.insert(0, str(ROOT / "tools" / "common"))

import numpy as np
import torch
from renderings import RENDERINGS
from safetensors.torch import load_file
from torch import Tensor

from smatter.compose.experts import ExpertMix
from smatter.compose.mixture import Mixture
from smatter.library.banks import PlacedBank
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Queries
from smatter.live.task import Task
from smatter.route.encode import Encoded, Routing, as_mixture, encode
from smatter.route.evidence import Evidence
from smatter.route.opening import expert_losses, weigh_experts
from smatter.route.store import Ask, TrainedRouter
from smatter.tasks.open import SHIPPED

LIBRARIES = {"new": SHIPPED / "signs-library", "old": before.LIBRARY}
SEEDS = (0, 1, 2)
PEERS, PEER_NAMES = ROOT / ".build" / "sources", ("one-for-all", "rendered")
"""What one would train instead; see tools/sources/plan.py."""


def router_folder(routers: Path, seed: int = 0, without: str = "") -> Path:
    """Where a router is: the one that ships, of another seed, or one that never saw a rendering."""
    if without:
        return routers / f"without-{without}"
    return routers / f"seed-{seed}" if seed else SHIPPED / "signs-router"


class Look:
    """One task seen by one library: accuracies in percent of whatever network is asked for.

    Args:
        network: of the library.
        name: of the list.
        index: of the task.
    """

    def __init__(self, network: LiveMixture, name: str, index: int) -> None:
        self.network, self.names = network, network.library.names
        episode = tasks(name).episode(index)
        self.domain = int(episode.query.domains.min())
        self.queries: Queries = episode_queries(network, episode)
        self.task = Task.of(network, prepared_support(network, episode))
        self.told: Encoded = encode(network, self.task.objective, self.names)
        self.logits = torch.stack([self.logits_of(Mixture.of({source: 1.0})) for source in self.names])

    def logits_of(self, mixture: Mixture, delta: np.ndarray | None = None) -> Tensor:
        """Scores of the classes by one network."""
        residual = None if delta is None else self.network.numbering.residual(torch.from_numpy(delta))
        self.network.compose(mixture, residual)
        return self.queries.logits(self.network.read(self.queries))

    def right(self, logits: Tensor) -> float:
        """Accuracy of some scores of the classes."""
        return right(self.queries, logits)

    def weights(self, weights: Tensor, delta: np.ndarray | None = None) -> float:
        """Of one network whose weights are mixed."""
        return self.right(self.logits_of(as_mixture(self.network, weights[None], self.names), delta))

    def predictions(self, weights: Tensor) -> float:
        """Of the sources' predictions, mixed."""
        return self.right(torch.tensordot(weights.float(), self.logits, 1))

    def asked(self, router: TrainedRouter) -> Routing:
        """What a router says, with evidence about the sources."""
        router.check_fits(self.network)
        return Ask(router, router.describe(self.network, self.names))(self.told)

    def routing(self, router: TrainedRouter) -> tuple[Routing, Tensor]:
        """What a router says, with evidence about the sources, and the loss of each example with each expert."""
        routing = self.asked(router)
        return routing, expert_losses(self.network, self.task.objective, router, routing)

    def with_sources(self, deltas: Sequence[np.ndarray]) -> Scores:
        """Evidence and the plain average where base plus each delta is a source as well."""
        losses = [self.told.losses]
        for delta in deltas:
            self.logits_of(Mixture.of({self.network.library.manifest.base: 1.0}), delta)
            read = self.network.read(self.task.objective)
            losses.append(self.task.objective.losses(read)[None].to(self.told.losses))
        names = (*self.names, *(f"delta {number}" for number in range(len(deltas))))
        found = torch.tensor(Evidence.of(names, torch.cat(losses)).weights)
        even = torch.full((len(names),), 1 / len(names), dtype=found.dtype)
        scores = {}
        for label, weights in (("evidence", found), ("uniform", even)):
            own, added = weights[: len(self.names)].clone(), weights[len(self.names) :]
            own[self.names.index(self.network.library.manifest.base)] += added.sum()
            delta = sum(float(weight) * each for weight, each in zip(added, deltas, strict=True))
            scores[label] = self.weights(own, np.asarray(delta, np.float32))
        return scores


class Delta:
    """A router's experts as vectors of the network's parameters."""

    def __init__(self, network: LiveMixture, router: TrainedRouter) -> None:
        assert router.bank
        self.bank, self.placed = router.bank, PlacedBank(router.bank, network.numbering)

    def of(self, alpha: Tensor) -> np.ndarray:
        """What weights of the experts add."""
        return self.placed.vector(self.bank.gates(ExpertMix(self.bank.digest, tuple(alpha.tolist()))))

    @property
    def whole(self) -> np.ndarray:
        """All that any expert opens, open."""
        return self.placed.vector(self.bank.masks.any(axis=0).astype(np.float32))

    @property
    def each(self) -> list[np.ndarray]:
        """Every expert alone."""
        return [self.of(row) for row in torch.eye(len(self.bank.masks))]


@cache
def peer_delta(name: str) -> np.ndarray:
    """What a network that one would train instead is above the base, as a vector of parameters."""
    network = live(LIBRARIES["new"])
    base, tuned = (load_file(folder / "model.safetensors") for folder in (LIBRARIES["new"] / "base", PEERS / name))
    vector = np.zeros(network.numbering.n_parameters, np.float32)
    for tensor, place in network.numbering.tensors.items():
        vector[place] = (tuned[tensor].float() - base[tensor].float()).flatten().numpy()
    return vector


def closed(routing: Routing, losses: Tensor, expert: int) -> Tensor:
    """Weights of the experts where one is not there: its weight is shared out among the others and null."""
    left = [number for number in range(len(losses)) if number != expert]
    alpha = torch.zeros(len(losses) - 1)
    alpha[left[:-1]] = weigh_experts(routing.expert_scores[left], losses[left])
    return alpha


def mixing(look: Look, router: TrainedRouter) -> Scores:
    """Weights against predictions, at equal weights and at the router's."""
    equal = torch.full((len(look.names),), 1 / len(look.names), dtype=torch.float64)
    evidence = torch.tensor(Evidence.of(look.names, look.told.losses).weights, dtype=torch.float64)
    rows = {"equal": equal, "evidence": evidence, "router": look.asked(router).weights[0]}
    scores: Scores = {}
    for label, weights in rows.items():
        scores |= {f"weights {label}": look.weights(weights), f"predictions {label}": look.predictions(weights)}
    singles = [look.right(logits) for logits in look.logits]
    scores["best in hindsight"] = max(singles)
    scores["base"] = singles[look.names.index(look.network.library.manifest.base)]
    return scores


def score(routers: Path, name: str, index: int) -> Scores:
    """All figures of one task: of the new library, of the old one (their names begin with "old")."""
    looks = {version: Look(live(folder), name, index) for version, folder in LIBRARIES.items()}
    new, old = looks["new"], looks["old"]
    shipped, old_router = trained(router_folder(routers)), trained(before.ROUTER)
    scores: Scores = {"domain": new.domain, **mixing(new, shipped)}
    scores |= {f"old {key}": value for key, value in mixing(old, old_router).items()}
    routing = old.asked(old_router)
    scores["old experts"] = old.weights(routing.weights[0], Delta(old.network, old_router).of(routing.experts))
    for seed in SEEDS:
        router = trained(router_folder(routers, seed))
        (routing, losses), delta = new.routing(router), Delta(new.network, router)
        alpha = weigh_experts(routing.expert_scores, losses)
        scores[f"experts seed {seed}"] = new.weights(routing.weights[0], delta.of(alpha))
        scores[f"gate alone seed {seed}"] = new.weights(routing.weights[0], delta.of(routing.experts))
        scores[f"no experts seed {seed}"] = new.weights(routing.weights[0])
        scores[f"null seed {seed}"] = 1 - float(alpha.sum())
        scores[f"null of the gate seed {seed}"] = 1 - float(routing.experts.sum())
        for expert in range(len(alpha)):
            scores[f"alpha {expert} seed {seed}"] = float(alpha[expert])
            if alpha[expert]:
                value = new.weights(routing.weights[0], delta.of(closed(routing, losses, expert)))
            else:
                value = scores[f"experts seed {seed}"]
            scores[f"closed {expert} seed {seed}"] = value
    delta = Delta(new.network, shipped)
    scores |= {f"{key} with the delta": value for key, value in new.with_sources([delta.whole]).items()}
    scores |= {f"{key} with each expert": value for key, value in new.with_sources(delta.each).items()}
    for peer in PEER_NAMES:
        base = Mixture.of({new.network.library.manifest.base: 1.0})
        scores[peer] = new.right(new.logits_of(base, peer_delta(peer)))
    scores |= {f"{key} with rendered": value for key, value in new.with_sources([peer_delta("rendered")]).items()}
    rendering = next((each for each in RENDERINGS if name.endswith(f"outside-{each}")), None)
    if rendering:
        router = trained(router_folder(routers, without=rendering))
        (routing, losses), delta = new.routing(router), Delta(new.network, router)
        alpha = weigh_experts(routing.expert_scores, losses)
        scores["left out"] = new.weights(routing.weights[0], delta.of(alpha))
        scores["left out, gate alone"] = new.weights(routing.weights[0], delta.of(routing.experts))
        scores["left out, no experts"] = new.weights(routing.weights[0])
        scores |= {f"left out, {key} with the delta": v for key, v in new.with_sources([delta.whole]).items()}
        scores |= {f"left out, {key} with each expert": v for key, v in new.with_sources(delta.each).items()}
    return scores
