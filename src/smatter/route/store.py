"""A trained router on disk: a folder with router.json, router.safetensors and, for its experts, experts.safetensors.

It holds all that routing needs beside the library: the router's weights, the probe set, by which sources that come
later are described, descriptors of the sources that it was trained with, and the bank of residual experts. Where they
were learnt, it holds what units of these are worth under budgets, and a posterior over routings. What calibration tasks
say of its rules stands in router.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from torch import Tensor

from smatter.algebra.simplex import truncate_alike
from smatter.compose.experts import ExpertMix
from smatter.compose.residual import Elements
from smatter.errors import InvalidRouter, InvalidSettings
from smatter.files.fields import Digest, Name, first_mistake
from smatter.files.hashing import file_digest
from smatter.files.reading import MappedFile, as_torch, safe_path
from smatter.files.writing import new_folder, write_file, write_tensors
from smatter.library.banks import BANK, Bank, read_bank
from smatter.live.mixture import LiveMixture
from smatter.posterior.learnt import LearntPosterior, read_posterior, write_posterior
from smatter.records import Progress, TensorSpec, printable, silent
from smatter.route.certificates import Certificate, check_certificates
from smatter.route.descriptor import N_MOMENTS, describe_sources
from smatter.route.encode import ClassStatistics, Encoded, Routing
from smatter.route.evidence import default_temperature, pooled_weights
from smatter.route.experts import used, with_null
from smatter.route.place import (
    POSTERIOR,
    TABLE,
    WEIGHTS,
    check_trained_for,
    identity_of,
    is_router,
    router_table,
)
from smatter.route.probe import Probe
from smatter.route.router import Router
from smatter.settings.rules import needs_posterior
from smatter.settings.training import RouterSettings
from smatter.tasks.rows import MAX_CHARACTERS
from smatter.tasks.suite import Inputs

MAX_PROBE = 20_000
NEWCOMER_TEMPERATURE = 2.0
"""By how much evidence is softer than without a router where it stands beside one that does not know all sources."""

DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.uint8: "U8"}

Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS)]


class _Table(BaseModel):
    """The contents of router.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[2] = Field(alias="schema")
    settings: RouterSettings
    base: Digest
    partition: Digest
    sources: dict[Name, Digest]
    groups: Annotated[tuple[Text, ...], Field(min_length=1, max_length=1_000)]
    texts: Annotated[tuple[Text, ...], Field(max_length=MAX_PROBE)]
    weights: Digest
    experts: Digest | None
    posterior: Digest | None = None
    record: dict[str, Any]
    certificates: Annotated[tuple[Certificate, ...], Field(max_length=1_000)] = ()


@dataclass(frozen=True)
class TrainedRouter:
    """A router and what it needs.

    Args:
        router: the function.
        bank: its residual experts, if it has any.
        probe: describes sources.
        statistics: of each group of the probe set, in the base's features.
        descriptors: of the sources that are known, by content digest; (n_groups, N_MOMENTS) each.
        sources: content digest of each source that it was trained with, by name.
        base: content digest of the base, whose features it takes.
        partition: digest of the module partition.
        record: how it was trained, for people.
        digest: of its files; empty where it is not on disk.
        posterior: over routings, where one was learnt.
        certificates: of its rules, where calibration tasks were asked.
        unit_values: what opening each unit is worth to a task, by the mask that it weighs, (n_masks, n_units), where it
            was trained for budgets.
    """

    router: Router
    bank: Bank | None
    probe: Probe
    statistics: tuple[ClassStatistics, ...]
    descriptors: Mapping[str, Tensor]
    sources: Mapping[str, str]
    base: str
    partition: str
    record: Mapping[str, Any]
    digest: str = ""
    posterior: LearntPosterior | None = None
    certificates: tuple[Certificate, ...] = ()
    unit_values: Tensor | None = None
    _later: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)
    """Descriptors of sources that came later, once they were made."""

    def check_fits(self, live: LiveMixture) -> None:
        """Refuse a library whose base or modules are not those that it was trained with; lend it the experts."""
        check_trained_for(self.base, self.partition, live.library.manifest)
        bank = self.bank
        if bank is not None and (bank.partition != self.partition or bank.tensors != tuple(live.numbering.tensors)):
            raise InvalidRouter("the router's experts are of another network: train one with `smatter train`")
        live.library.lend(bank)

    @property
    def expert_names(self) -> tuple[str, ...]:
        """What people call its experts: what each began to learn, or a number."""
        n_experts = self.router.settings.n_experts
        told = self.record.get("expert_names")
        if isinstance(told, list) and len(told) == n_experts:
            return tuple(printable(str(name)) for name in told)
        return tuple(f"expert {number}" for number in range(1, n_experts + 1))

    def mix(self, live: LiveMixture, alpha: Tensor, opened: Tensor | None = None) -> ExpertMix | None:
        """What a task opens of its experts, which the library then knows; none without experts.

        Args:
            live: the library's network.
            alpha: weights of the experts, (n_experts,); the null expert has the rest, and what it opens with it.
            opened: how far each unit is open, (n_units,), where these were tuned one by one.
        """
        if self.bank is None:
            return None
        live.library.lend(self.bank)
        elements = None
        if opened is not None:
            gates = opened.detach().float().numpy()
            elements = Elements(np.flatnonzero(gates), gates[np.flatnonzero(gates)])
        return ExpertMix(self.bank.digest, tuple(with_null(alpha, len(self.bank.masks)).tolist()), elements)

    def describe(self, live: LiveMixture, sources: Sequence[str], progress: Progress = silent) -> Tensor:
        """Descriptors of sources relative to the base's, (n_sources, n_groups, N_MOMENTS).

        A source that the router was not trained with costs one pass of the probe set, the first time.
        """
        digests = live.library.manifest.digests
        new = [name for name in sources if digests[name] not in self.descriptors and digests[name] not in self._later]
        if new:
            described = describe_sources(live, self.probe, new, progress)
            self._later.update(zip((digests[name] for name in new), described, strict=True))
        known = {**self._later, **self.descriptors}
        rows = [known[digests[name]] for name in sources]
        return (torch.stack(rows) - self.descriptors[self.base]).float()

    def ask(self, live: LiveMixture, sources: Sequence[str], max_sources: int | None = None) -> Ask:
        """Itself with a library's sources, to be asked about tasks; see `describe` and `Ask`."""
        digests = live.library.manifest.digests
        knows_all = {digests[name] for name in sources} <= set(self.sources.values())
        described = self.describe(live, sources)
        return Ask(self, described, max_sources, keys=self.router.keys(), knows_all=knows_all)


@dataclass(frozen=True)
class Ask:
    """Weighs the sources of a task as a trained router says.

    A source whose loss or descriptor is not a number gets no weight, and experts of hardly any weight are left out.

    A router has learnt how far to believe losses of the sources that it knows. Where others came later, its weights
    without losses are multiplied by evidence instead. On validation tasks of Signs whose best source was new to it this
    gained 1.0 points (0.6 to 1.5), and 1.7 (0.8 to 2.7) with random perturbations among the sources.

    Args:
        trained: the router.
        descriptors: of the sources, relative to the base's; see `TrainedRouter.describe`.
        max_sources: the most sources with weight; all by default.
        keys: of the router, if it is asked more than once; see `Router.keys`.
        knows_all: whether it was trained with all of these sources.
    """

    trained: TrainedRouter
    descriptors: Tensor
    max_sources: int | None = None
    keys: Tensor | None = None
    knows_all: bool = True

    def __call__(self, encoded: Encoded) -> Routing:
        """Route a task."""
        losses, trained = encoded.losses, self.trained
        usable = self.descriptors.isfinite().all(dim=(1, 2))
        if losses is not None:
            usable &= losses.isfinite().all(dim=1)
        known, told = self.descriptors[usable], None if losses is None else losses[usable]
        routing: Routing = trained.router(encoded.statistics, known, told, self.keys)
        found = routing.weights
        if told is not None and not self.knows_all:
            blind = trained.router(encoded.statistics, known, None, self.keys)
            temperature = NEWCOMER_TEMPERATURE * default_temperature(len(told))
            found = torch.stack([pooled_weights(told, temperature, row, power=1.0) for row in blind.weights])
        weights = routing.weights.new_zeros(len(routing.weights), len(self.descriptors))
        weights[:, usable] = found.to(weights)
        weights = truncate_alike(weights.double(), self.max_sources)
        return replace(routing, weights=weights, experts=used(routing.experts))


def write_router(folder: str | Path, trained: TrainedRouter, replace: bool = False) -> None:
    """Save a router in a new folder; an existing one is replaced in one step, if asked for.

    Certificates of other weights, as a router has that was trained on, are left out.
    """
    probe, bank = trained.probe, trained.bank
    tensors: dict[str, Tensor] = {f"router.{name}": each for name, each in trained.router.state_dict().items()}
    for number, each in enumerate(trained.statistics):
        tensors |= {f"probe.{number}.{name}": value for name, value in vars(each).items()}
    tensors |= {"probe.classes": probe.classes, "probe.groups": probe.groups}
    if trained.unit_values is not None:
        tensors["unit_values"] = trained.unit_values
    if not isinstance(probe.inputs, tuple):
        tensors["probe.pictures"] = torch.from_numpy(np.ascontiguousarray(probe.inputs))
    tensors["descriptors"] = torch.stack([trained.descriptors[digest] for digest in trained.sources.values()])
    with new_folder(Path(folder), replace and is_router(Path(folder))) as temporary:
        items = [
            (name, TensorSpec(DTYPES[tensor.dtype], tuple(tensor.shape)), tensor.detach().numpy())
            for name, tensor in tensors.items()
        ]
        write_tensors(temporary / WEIGHTS, items, {})
        if bank:
            bank.write(temporary / BANK)
        if trained.posterior:
            write_posterior(temporary / POSTERIOR, trained.posterior)
        table = {
            "schema": 2,
            "settings": trained.router.settings.to_dict(),
            "base": trained.base,
            "partition": trained.partition,
            "sources": dict(trained.sources),
            "groups": list(probe.names),
            "texts": list(probe.inputs) if isinstance(probe.inputs, tuple) else [],
            "weights": file_digest(temporary / WEIGHTS),
            "experts": bank.digest if bank else None,
            "posterior": file_digest(temporary / POSTERIOR) if trained.posterior else None,
            "record": dict(trained.record),
        }
        identity = {decides: identity_of(table, temporary, decides) for decides in (True, False)}
        kept = [each for each in trained.certificates if each.router == identity[needs_posterior(each.rule)]]
        if kept:  # only then: versions that know of none read all other routers
            table["certificates"] = [each.model_dump(mode="json") for each in kept]
        text = json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False)
        write_file(temporary / TABLE, (text + "\n").encode())


def read_router(folder: str | Path) -> TrainedRouter:
    """Open a router that `write_router` saved."""
    folder = Path(folder)
    contents = router_table(folder)
    try:
        table = _Table.model_validate(contents)
        path = safe_path(folder, WEIGHTS)
        if file_digest(path) != table.weights:
            raise InvalidRouter(f"{path} is not the file that {TABLE} was written with")
        bank = None if table.experts is None else read_bank(safe_path(folder, BANK), table.experts)
        restored = _restored(table, MappedFile(path), bank, file_digest(folder / TABLE))
        check_certificates(table.certificates, folder)
        if table.posterior is None:
            return restored
        path = safe_path(folder, POSTERIOR)
        if file_digest(path) != table.posterior:
            raise InvalidRouter(f"{path} is not the file that {TABLE} was written with")
        posterior = read_posterior(path)
        if posterior.catalogue.experts.shape[1] != len(restored.expert_names) + 1:
            raise InvalidRouter(
                f"{path} is of {posterior.catalogue.experts.shape[1] - 1} experts, and the router has others"
            )
        return replace(restored, posterior=posterior)
    except ValidationError as error:
        raise InvalidRouter(f"{folder / TABLE} is not a router ({first_mistake(error)}); train it again") from None
    except (InvalidSettings, InvalidRouter, TypeError, RuntimeError, LookupError) as error:
        raise InvalidRouter(f"{folder} is not a sound router: {_line(error)}; train it again") from None


def _restored(table: _Table, file: MappedFile, bank: Bank | None, digest: str) -> TrainedRouter:
    tensors = {name: _tensor(file, name) for name in file.header.tensors}
    settings = table.settings
    statistics = tuple(_statistics(tensors, number) for number in range(len(table.groups)))
    state = {name.removeprefix("router."): each for name, each in tensors.items() if name.startswith("router.")}
    n_modules = len(state["combine"]) if settings.tying == "tied" else len(state["value.2.bias"])
    router = Router(settings, statistics, n_modules, torch.ones(2, N_MOMENTS), torch.Generator())
    router.load_state_dict(state)
    classes, groups = tensors["probe.classes"], tensors["probe.groups"]
    inputs: Inputs = table.texts or tensors["probe.pictures"].numpy()
    if not len(inputs) == len(classes) == len(groups) or int(groups.max()) + 1 != len(table.groups):
        raise InvalidRouter("its probe set and the labels of it are of different lengths")
    if tensors["descriptors"].shape != (len(table.sources), len(table.groups), N_MOMENTS):
        raise InvalidRouter("its descriptors are not those of its sources")
    descriptors = dict(zip(table.sources.values(), tensors["descriptors"], strict=True))
    if table.base not in descriptors:
        raise InvalidRouter("its base is not among its sources")
    if (0 if bank is None else len(bank.masks)) != settings.n_masks:
        raise InvalidRouter(f"its bank does not have the {settings.n_experts} experts that it weighs")
    unit_values = tensors.get("unit_values")
    if unit_values is not None:
        fitting = () if bank is None else bank.masks.shape
        if tuple(unit_values.shape) != fitting or unit_values.dtype != torch.float32:
            raise InvalidRouter("its values of units are not those of its experts")
    return TrainedRouter(
        router=router.requires_grad_(False),
        bank=bank,
        unit_values=unit_values,
        probe=Probe(inputs, classes, groups, table.groups),
        statistics=statistics,
        descriptors=descriptors,
        sources=table.sources,
        base=table.base,
        partition=table.partition,
        record=table.record,
        digest=digest,
        certificates=table.certificates,
    )


def _statistics(tensors: Mapping[str, Tensor], number: int) -> ClassStatistics:
    """Of one group of the probe set."""
    prototypes, spreads, sizes = (tensors[f"probe.{number}.{name}"] for name in ("prototypes", "spreads", "sizes"))
    alike = prototypes.shape == spreads.shape and sizes.shape == prototypes.shape[:1]
    floats = {prototypes.dtype, spreads.dtype, sizes.dtype} == {torch.float32}
    if prototypes.ndim != 2 or not prototypes.numel() or not alike or not floats or not bool((sizes >= 1).all()):
        raise InvalidRouter(f"the statistics of group {number} of its probe set are of different shapes, or empty")
    return ClassStatistics(prototypes, spreads, sizes)


def _tensor(file: MappedFile, name: str) -> Tensor:
    tensor = as_torch(file.whole(name).copy(), file.header.tensors[name].spec)
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise InvalidRouter(f"its tensor {name!r} has NaN or Inf")
    return tensor


def _line(error: Exception) -> str:
    text = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split())[:300]
