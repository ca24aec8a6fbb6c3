"""What the solver makes of a task, for a router to learn from; solved once and kept on disk.

    tau^2 KL(softmax(rho_teacher / tau) || softmax(rho / tau))        (multi-source paper, section 6)

The solver gives weights, some of which are zero; the teacher's logits are log(w + FLOOR). Weights of experts are taught
likewise, by gradient steps on the examples; these depend on the experts, which change, so they are not kept.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import kl_div

from smatter.compose.mixture import Mixture
from smatter.errors import SmatterError
from smatter.files.reading import read_small_json
from smatter.files.writing import write_file
from smatter.live.descent import descend_experts
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Queries
from smatter.live.problems import ResidualLoss
from smatter.live.task import Task, leave_one_out
from smatter.methods.solver import SolverSettings, solver
from smatter.route.experts import Experts
from smatter.tasks.episode import Episode
from smatter.tasks.support import Support

FLOOR = 1e-3
"""A source that the solver leaves out is one that a router should give at most about this weight."""

EXPERT_STEPS = 3


@dataclass(frozen=True)
class Teaching:
    """What a teacher says of a task.

    Args:
        weights: of the sources, (n_sources,).
        probabilities: of the classes of each query, (n_queries, n_classes).
    """

    weights: Tensor
    probabilities: Tensor


@dataclass(frozen=True)
class Teacher:
    """The solver as a teacher.

    Args:
        folder: where solutions are kept.
        settings: of the solver.
    """

    folder: Path
    settings: SolverSettings = field(default_factory=SolverSettings)

    def teach(self, live: LiveMixture, support: Support, queries: Queries) -> Teaching:
        """Solve a task, or find it solved, and look at its queries; the labels of these are not used."""
        task, names = Task.of(live, support), live.library.names
        parts = [task.digest, list(live.library.manifest.digests.items()), asdict(self.settings)]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        path = self.folder / f"{key}.json"
        weights = _known(path, len(names))
        if weights is None:
            found = solver(live, task, self.settings).mixture.mean_weights
            weights = [found.get(name, 0.0) for name in names]
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps(weights).encode())
        live.compose(Mixture.of(dict(zip(names, weights, strict=True))))
        return Teaching(torch.tensor(weights), queries.logits(live.read(queries)).softmax(dim=1))


def distillation(weights: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """How far a router's scores, (n_rows, n_sources), are from a teacher's weights, (n_sources,); mean over rows."""
    teacher = ((weights.to(scores) + FLOOR).log() / temperature).softmax(dim=0).expand_as(scores)
    student = (scores / temperature).log_softmax(dim=1)
    return temperature**2 * kl_div(student, teacher, reduction="batchmean")


def better_experts(
    live: LiveMixture, episode: Episode, mixture: Mixture, experts: Experts, gates: Tensor, alpha: Tensor
) -> Tensor | None:
    """Weights of experts and null expert after gradient steps on the examples, (n_experts + 1,).

    With one example of each class nothing can be held out, and there is nothing to say.

    Args:
        live: the network.
        episode: the task; its queries are not used.
        mixture: of the sources.
        experts: as they are now.
        gates: of the experts, (n_experts, n_units).
        alpha: weights to begin at, (n_experts,).
    """
    support = prepared_support(live, episode)
    if max(support.class_sizes) == 1:
        return None
    fixed = None if experts.common is None else experts.residual(torch.zeros_like(alpha), gates).detach()
    loss, values = ResidualLoss(live, leave_one_out(live, support), mixture, fixed), experts.values.detach()
    found = descend_experts(
        loss, experts.layout, values=values, masks=gates.detach(), alpha=alpha.detach(), n_steps=EXPERT_STEPS
    )
    return torch.cat([found, 1 - found.sum(dim=0, keepdim=True)])


def _known(path: Path, n_sources: int) -> list[float] | None:
    """A solution that was kept; none where there is none, or a damaged one."""
    if not path.exists():
        return None
    try:
        weights = [float(weight) for weight in read_small_json(path)]
    except (SmatterError, TypeError, ValueError):
        return None
    return weights if len(weights) == n_sources and abs(sum(weights) - 1) < 1e-6 and min(weights) >= 0 else None
