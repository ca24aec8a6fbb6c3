"""A recipe: what rebuilds a task's model bit for bit wherever the library is, and names the classes of new inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from smatter.compose.experts import ExpertMix
from smatter.compose.head import ClassHead
from smatter.compose.mixture import Mixture
from smatter.compose.records import Notes
from smatter.compose.residual import Residual
from smatter.errors import InvalidRecipe


@dataclass(frozen=True)
class Recipe:
    """Mixture, experts, residual and head, tied to the exact contents of the sources they were made for.

    Args:
        mixture: weights of the sources.
        digests: content digest of each source the mixture names.
        architecture: the library's architecture, for people.
        partition_digest: digest of the module partition that weights per module refer to.
        residual: the task's own sparse correction, if any.
        experts: what it opens of a delta that tasks share, if anything.
        head: how classes are told apart; none in a recipe of weights alone.
        notes: what it says of itself.
    """

    mixture: Mixture
    digests: Mapping[str, str]
    architecture: str
    partition_digest: str
    residual: Residual | None = None
    experts: ExpertMix | None = None
    head: ClassHead | None = None
    notes: Notes = field(default_factory=Notes)

    def __post_init__(self) -> None:
        if set(self.digests) != set(self.mixture.sources):
            raise InvalidRecipe("a recipe needs the digest of each source in its mixture, and of no other")
        for name, digest in (*self.digests.items(), ("the partition", self.partition_digest)):
            if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
                raise InvalidRecipe(f"{digest[:80]!r}, the digest of {name}, is not a sha256 in lower-case hex")

    def needed_head(self) -> ClassHead:
        """Its head; refused where it has none, as private recipes and those of weights alone."""
        if self.head is None:
            raise InvalidRecipe("the recipe has no head, so it names no classes: make one with `smatter adapt -o`")
        return self.head

    def check_honoured(self) -> None:
        """Refuse a recipe that asks for more than its weights: what came of it would not be its model."""
        if self.notes.members:
            raise InvalidRecipe("the recipe has members, which this version cannot honour: use a later Smatter")

    def lost_in(self, digests: Mapping[str, str]) -> dict[str, float]:
        """Sources with weight whose contents a library does not hold, and the share of the weight that each carries.

        Args:
            digests: content digest of each source of that library.
        """
        held, rows = set(digests.values()), self.mixture.rows
        return {
            name: sum(row[column] for row in rows) / len(rows)
            for column, name in enumerate(self.mixture.sources)
            if name in self.mixture.active_sources and self.digests[name] not in held
        }

    def mixture_in(self, digests: Mapping[str, str]) -> Mixture:
        """The mixture in the names of a library, its sources found by content.

        Args:
            digests: content digest of each source of that library.
        """
        for name, share in self.lost_in(digests).items():
            what = "has other contents in this library than" if name in digests else "is not in this library, only"
            raise InvalidRecipe(
                f"source {name!r} {what} in the recipe, where it carries {share:.1%} of the weight: restore it, or fit "
                "again without it with `smatter adapt --refit`"
            )
        found: dict[str, str] = {}
        active = self.mixture.active_sources
        for name in sorted(self.mixture.sources, key=lambda name: (name not in active, name not in digests)):
            free = [each for each in self._names(name, digests) if each not in found.values()]
            if free:
                found[name] = free[0]
            elif name in active:
                raise InvalidRecipe(
                    f"source {name!r} has the same contents as another one of the recipe, and this library holds them "
                    "once: add them under a second name, or share out the weights with `smatter adapt --refit`"
                )
        columns = [column for column, name in enumerate(self.mixture.sources) if name in found]
        rows = tuple(tuple(row[column] for column in columns) for row in self.mixture.rows)
        names = tuple(found[self.mixture.sources[column]] for column in columns)
        return Mixture(names, rows, self.mixture.modules, self.mixture.rule)

    def renormalised(self, digests: Mapping[str, str]) -> "Recipe":
        """The recipe on the sources that a library holds, their weights divided by what is left of the sum.

        Nobody knows how good it is: the examples would tell.
        """
        self.check_honoured()
        mixture = self.mixture
        if mixture.rule != "simplex":
            raise InvalidRecipe("coefficients of task arithmetic have no sum to keep: fit again with examples")
        rows = []
        for row in mixture.rows:
            left: dict[str, float] = {}
            for name, weight in zip(mixture.sources, row, strict=True):
                for held in self._names(name, digests)[:1]:
                    left[held] = left.get(held, 0.0) + weight
            total = sum(left.values())
            if not total > 0:
                raise InvalidRecipe("none of the sources that carry its weight are left: fit again with examples")
            rows.append({name: weight / total for name, weight in left.items()})
        origin = self.notes.origin and self.notes.origin.model_copy(update={"loss": None})
        return replace(
            self,
            mixture=Mixture(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), mixture.modules),
            digests={name: digests[name] for name in rows[0]},
            notes=self.notes.model_copy(update={"origin": origin, "pins": None}),
        )

    def _names(self, name: str, digests: Mapping[str, str]) -> list[str]:
        """Names in a library of a source's contents, its own first."""
        alike = [other for other, digest in digests.items() if digest == self.digests[name]]
        return sorted(alike, key=lambda other: other != name)
