"""A catalogue on disk: one safetensors file with the routings, their costs, and the digests of what they mix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smatter.compose.mixture import Mixture
from smatter.compose.records import Words
from smatter.errors import InvalidSettings, NotFound, SmatterError
from smatter.files.fields import Digest, Name, first_mistake
from smatter.files.reading import MappedFile, as_torch, parse_json
from smatter.files.writing import write_tensors
from smatter.library.library import Library
from smatter.posterior.catalogue import Catalogue
from smatter.records import TensorSpec
from smatter.route.store import TrainedRouter

KEY = "smatter_catalogue"
MAX_ROUTINGS = 1_000


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = Field(alias="schema")
    names: Annotated[tuple[Words, ...], Field(max_length=MAX_ROUTINGS)]
    sources: Annotated[dict[Name, Digest], Field(min_length=1)]
    bank: Digest | None
    record: dict[str, Any]


@dataclass(frozen=True)
class KeptCatalogue:
    """A catalogue and what it belongs to.

    Args:
        catalogue: the routings.
        sources: content digest of each source, in the order of the weights, by name.
        bank: digest of the experts; none without any.
        record: how it came about, for people.
    """

    catalogue: Catalogue
    sources: Mapping[str, str]
    bank: str | None = None
    record: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, catalogue: Catalogue, library: Library, trained: TrainedRouter, record: Mapping[str, Any]
    ) -> KeptCatalogue:
        """With the digests of a library's sources and a router's experts."""
        digests = library.manifest.digests
        sources = {name: digests[name] for name in library.names}
        return cls(catalogue, sources, trained.bank.digest if trained.bank else None, record)

    @property
    def mixtures(self) -> dict[str, Mixture]:
        """What a shared runtime keeps in memory, by name: recipes that chose among these are on one of them."""
        names, found = tuple(self.sources), dict[str, Mixture]()
        for name, row in zip(self.catalogue.names, self.catalogue.weights.double(), strict=True):
            mixture = Mixture(names, (tuple((row / row.sum()).tolist()),)).without_idle()
            if mixture not in found.values():
                found[name] = mixture
        return found

    def check_fits(self, library: Library, trained: TrainedRouter) -> Catalogue:
        """The catalogue; refused where its sources or experts are others than those that are used."""
        digests = library.manifest.digests
        if list(self.sources.values()) != [digests[name] for name in library.names]:
            raise InvalidSettings("the catalogue is of other sources than the library's: make one of these")
        n_columns = self.catalogue.experts.shape[1]
        if self.bank != (trained.bank.digest if trained.bank else None) or n_columns != len(trained.expert_names) + 1:
            raise InvalidSettings("the catalogue is of another router's experts: make one with this router")
        return self.catalogue


def write_catalogue(path: Path, kept: KeptCatalogue) -> None:
    """Save it; an existing file is replaced in one step."""
    catalogue = kept.catalogue
    tensors = {"weights": catalogue.weights, "experts": catalogue.experts, "costs": catalogue.costs}
    header = {
        "schema": 1,
        "names": list(catalogue.names),
        "sources": dict(kept.sources),
        "bank": kept.bank,
        "record": dict(kept.record),
    }
    items = [
        (name, TensorSpec("F32", tuple(each.shape)), each.float().contiguous().numpy())
        for name, each in tensors.items()
    ]
    write_tensors(path, items, {KEY: json.dumps(header, ensure_ascii=False, allow_nan=False)})


def read_catalogue(path: Path) -> KeptCatalogue:
    """A catalogue that `write_catalogue` saved."""
    if not path.is_file():
        raise NotFound(f"{path} is no file; give a catalogue that `smatter catalogue` wrote")
    try:
        file = MappedFile(path)
        header = _Header.model_validate(parse_json(file.header.metadata[KEY].encode(), path))
        shapes = {name: each.spec.shape for name, each in file.header.tensors.items()}
        n_routings, n_sources = len(header.names), len(header.sources)
        n_experts = shapes["experts"][-1]
        if shapes != {"weights": (n_routings, n_sources), "experts": (n_routings, n_experts), "costs": (n_routings,)}:
            raise InvalidSettings("its tensors are not of one routing each")
        if {each.spec.dtype for each in file.header.tensors.values()} != {"F32"}:
            raise InvalidSettings("its tensors are not float32")
        tensors = {name: as_torch(file.whole(name).copy(), each.spec) for name, each in file.header.tensors.items()}
        return KeptCatalogue(Catalogue(header.names, **tensors), header.sources, header.bank, header.record)
    except ValidationError as error:
        raise InvalidSettings(f"{path} is not a catalogue ({first_mistake(error)}); make it again") from None
    except (LookupError, ValueError, SmatterError) as error:
        raise InvalidSettings(f"{path} is not a sound catalogue: {str(error)[:200]}; make it again") from None


def is_catalogue(path: Path) -> bool:
    """Whether a file is a catalogue, sound or not."""
    try:
        return KEY in MappedFile(path).header.metadata
    except (SmatterError, OSError, ValueError):
        return False
