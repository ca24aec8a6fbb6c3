"""A posterior that was learnt for a router, as one file in the router's folder: posterior.safetensors.

It holds the scoring network, the catalogue that it chooses among, the prior, and calibrations: what decision rules did
on tasks kept for that, from which thresholds follow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from smatter.algebra.luck import difference_error
from smatter.compose.records import Number, Words
from smatter.errors import InvalidRouter, InvalidSettings, SmatterError
from smatter.files.fields import Digest, Name, first_mistake
from smatter.files.reading import MappedFile, as_torch, parse_json
from smatter.files.writing import write_tensors
from smatter.posterior.amortised import Amortised, PosteriorSettings
from smatter.posterior.catalogue import Catalogue
from smatter.posterior.categorical import Categorical
from smatter.posterior.task_table import N_OWN, TaskTable
from smatter.posterior.tempered import tempered_evidence
from smatter.records import TensorSpec

KEY = "smatter_posterior"
MAX_CALIBRATED = 100_000
"""Tasks of a calibration."""


@dataclass(frozen=True)
class RuleCalibration:
    """What a decision rule did on tasks that nothing was chosen on.

    Args:
        rule: which, as people write it.
        tasks: name of the list.
        digest: of the list.
        scores: uncertainty of each task by the name of the score, (n_tasks,) each; NaN where a task has none.
        errors: share of each task's queries that the rule names wrongly, (n_tasks,).
    """

    rule: str
    tasks: str
    digest: str
    scores: Mapping[str, Tensor]
    errors: Tensor

    def __post_init__(self) -> None:
        errors = self.errors
        if errors.ndim != 1 or any(each.shape != errors.shape for each in self.scores.values()):
            raise InvalidSettings(f"the calibration of {self.rule} has not one error and one of each score for a task")
        if not bool(((errors >= 0) & (errors <= 1)).all()):  # also refuses NaN
            raise InvalidSettings(f"errors of the calibration of {self.rule} are no shares of queries")

    def threshold(self, score: str, coverage: float) -> float:
        """The score up to which that share of the tasks is answered.

        Args:
            score: its name.
            coverage: the share, above 0 and up to 1.
        """
        if not 0 < coverage <= 1:
            raise InvalidSettings(f"a coverage of {coverage} is no share of the tasks: give one above 0 and up to 1")
        known = self._known(score)
        n_answered = math.ceil(coverage * len(known) - 1e-9)  # .55 of 100 is 55.000...01
        return float(known.sort().values[n_answered - 1])

    def _known(self, score: str) -> Tensor:
        if score not in self.scores:
            raise InvalidSettings(f"{score!r} was not calibrated for {self.rule}: use one of {', '.join(self.scores)}")
        known = self.scores[score]
        known = known[~known.isnan()]
        if not len(known):
            raise InvalidSettings(f"{score!r} has no value on any task of {self.tasks}: use another score")
        return known


@dataclass(frozen=True)
class LearntPosterior:
    """A posterior over routings and what it needs.

    Args:
        network: scores routings; where there is none, their losses on the examples do.
        catalogue: those that are the same for every task; see `route.table.rows_of`.
        log_prior: log p of the rows of a task's table, (n_routings,).
        sources: content digest of each source, in the catalogue's order, by name.
        temperature: of q, fitted where nothing was trained.
        calibrations: of decision rules, by rule.
        record: how it was trained, for people.
    """

    network: Amortised | None
    catalogue: Catalogue
    log_prior: Tensor
    sources: Mapping[str, str]
    temperature: float = 1.0
    calibrations: Mapping[str, RuleCalibration] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        catalogue = self.catalogue
        n_plain = int((catalogue.experts[:, -1] == 1).sum())
        if self.log_prior.shape != (n_rows := N_OWN + len(catalogue) + n_plain,):
            raise InvalidSettings(f"the prior is of {len(self.log_prior)} routings, and a task has {n_rows}")
        if not bool((self.log_prior <= 0).all() and self.log_prior.isfinite().any()):  # also refuses NaN
            raise InvalidSettings("the prior has no log-probabilities")
        if len(self.sources) != (n_sources := catalogue.weights.shape[1]):
            raise InvalidSettings(f"the catalogue weighs {n_sources} sources, and {len(self.sources)} are named")

    def __call__(self, table: TaskTable) -> Categorical:
        """q of a task."""
        if self.network is None:
            found = tempered_evidence(table.points, table.means, float(difference_error(table.losses)))
            return table.counted_once(found)
        with torch.no_grad():
            found = self.network(table, self.log_prior)
        return Categorical(found.points, found.log_probs / self.temperature)

    def calibration(self, rule: str) -> RuleCalibration:
        """What is known of a rule; refuses one that was not calibrated."""
        if rule not in self.calibrations:
            known = ", ".join(self.calibrations) or "none"
            raise InvalidSettings(f"{rule} was not calibrated, only {known}: run `smatter calibrate` for it first")
        return self.calibrations[rule]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Calibrated(_Record):
    rule: Words
    tasks: Words
    digest: Digest
    scores: Annotated[tuple[Words, ...], Field(max_length=100)]


class _Header(_Record):
    version: Literal[1] = Field(alias="schema")
    settings: PosteriorSettings
    names: Annotated[tuple[Words, ...], Field(min_length=1, max_length=10_000)]
    sources: dict[Name, Digest]
    temperature: Annotated[Number, Field(gt=0)]
    calibrations: Annotated[tuple[_Calibrated, ...], Field(max_length=100)]
    record: dict[str, Any]


def write_posterior(path: Path, posterior: LearntPosterior) -> None:
    """Save it; an existing file is replaced in one step."""
    catalogue = posterior.catalogue
    assert posterior.network is not None, "what was not trained is not kept"
    tensors: dict[str, Tensor] = {f"network.{name}": each for name, each in posterior.network.state_dict().items()}
    tensors |= {"weights": catalogue.weights, "experts": catalogue.experts, "costs": catalogue.costs}
    tensors["log_prior"] = posterior.log_prior
    told = []
    for number, (rule, each) in enumerate(posterior.calibrations.items()):
        tensors[f"calibration.{number}.errors"] = each.errors
        tensors |= {f"calibration.{number}.{name}": values for name, values in each.scores.items()}
        told.append({"rule": rule, "tasks": each.tasks, "digest": each.digest, "scores": list(each.scores)})
    header = {
        "schema": 1,
        "settings": asdict(posterior.network.settings),
        "names": list(catalogue.names),
        "sources": dict(posterior.sources),
        "temperature": posterior.temperature,
        "calibrations": told,
        "record": dict(posterior.record),
    }
    items = [
        (name, TensorSpec("F64", tuple(each.shape)), each.detach().double().contiguous().numpy())
        for name, each in tensors.items()
    ]
    write_tensors(path, items, {KEY: json.dumps(header, ensure_ascii=False, allow_nan=False)})


def read_posterior(path: Path) -> LearntPosterior:
    """A posterior that `write_posterior` saved."""
    file = MappedFile(path)
    try:
        header = _Header.model_validate(parse_json(file.header.metadata[KEY].encode(), path))
        tensors = {name: as_torch(file.whole(name).copy(), each.spec) for name, each in file.header.tensors.items()}
        network = Amortised(header.settings, torch.Generator())
        states = {name.removeprefix("network."): each for name, each in tensors.items() if name.startswith("network.")}
        if not all(bool(each.isfinite().all()) for each in states.values()):
            raise InvalidRouter("its weights have NaN or Inf")
        network.load_state_dict(states)
        catalogue = Catalogue(
            header.names,
            tensors["weights"].float(),
            experts=tensors["experts"].float(),
            costs=tensors["costs"].float(),
        )
        calibrations = {
            each.rule: RuleCalibration(
                rule=each.rule,
                tasks=each.tasks,
                digest=each.digest,
                scores={name: tensors[f"calibration.{number}.{name}"] for name in each.scores},
                errors=tensors[f"calibration.{number}.errors"],
            )
            for number, each in enumerate(header.calibrations)
        }
        return LearntPosterior(
            network,
            catalogue,
            log_prior=tensors["log_prior"],
            sources=header.sources,
            temperature=header.temperature,
            calibrations=calibrations,
            record=header.record,
        )
    except ValidationError as error:
        raise InvalidRouter(f"{path} is not a posterior ({first_mistake(error)}); train it again") from None
    except (LookupError, RuntimeError, ValueError, SmatterError) as error:
        raise InvalidRouter(f"{path} is not a sound posterior: {str(error)[:200]}; train it again") from None
