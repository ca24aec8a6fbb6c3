"""A recipe: what rebuilds a task's model bit for bit wherever the library is, and names the classes of new inputs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from smatter.compose.experts import ExpertMix
from smatter.compose.head import ClassHead
from smatter.compose.members import MAX_MEMBERS, Member, branched
from smatter.compose.mixture import Mixture
from smatter.compose.records import Notes
from smatter.compose.residual import Residual
from smatter.errors import InvalidRecipe
from smatter.records import printable, told_names, told_shares


@dataclass(frozen=True)
class Recipe:
    """Mixture, experts, residual and head, tied to the exact contents of the sources they were made for.

    Args:
        mixture: weights of the sources; those of members alone are named with weight zero.
        digests: content digest of each source the mixture names.
        architecture: the library's architecture, for people.
        partition_digest: digest of the module partition that weights per module refer to.
        residual: the task's own sparse correction, if any.
        experts: what it opens of a delta that tasks share, if anything.
        head: how classes are told apart; none in a recipe of weights alone.
        members: further networks, whose scores are averaged with those of its own. Experts and residual are added to
            each of them.
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
    members: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        if set(self.digests) != set(self.mixture.sources):
            raise InvalidRecipe("a recipe needs the digest of each source in its mixture, and of no other")
        for name, digest in (*self.digests.items(), ("the partition", self.partition_digest)):
            if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
                raise InvalidRecipe(f"{digest[:80]!r}, the digest of {name}, is not a sha256 in lower-case hex")
        if len(self.members) > MAX_MEMBERS or not self.own_weight > 0:
            raise InvalidRecipe(f"{len(self.members)} members take all of the weight: leave some to its own network")
        for member in self.members:
            if not set(member.mixture.sources) <= set(self.mixture.sources):
                raise InvalidRecipe("a source of a member is not among those of the mixture: name it there")
            member.check_head(self.head)

    def __repr__(self) -> str:
        found = self.notes.origin
        head = f"{self.head.kind} head of {told_names(self.head.class_names)}" if self.head else "no head"
        parts = [head, f"{len(self.members)} more networks" if self.members else ""]
        parts += [f"{self.residual.n_nonzero} parameters corrected" if self.residual else ""]
        parts += ["experts" if self.experts and not self.experts.is_idle else ""]
        made = f" by {found.method}" if found else ""
        shares = told_shares(self.shares)
        return f"Recipe of {printable(self.architecture)}{made}: {shares}\n  {', '.join(filter(None, parts))}"

    def needed_head(self) -> ClassHead:
        """Its head; refused where it has none, as private recipes and those of weights alone."""
        if self.head is None:
            raise InvalidRecipe("the recipe has no head, so it names no classes: make one with `smatter adapt -o`")
        return self.head

    def check_rebudgeted(self, budget: object) -> None:
        """Refuse to fit a task again without a budget where it was made to fit one."""
        if self.notes.budget and not budget:
            told = ", ".join(f"{each.value:.6g} {each.unit}" for each in self.notes.budget)
            raise InvalidRecipe(f"the recipe was made to fit {told}: give --budget and --profile again")

    @property
    def own_weight(self) -> float:
        """The weight of its own network's scores; one where it has no members."""
        return 1 - sum(member.weight for member in self.members)

    @property
    def network_weights(self) -> tuple[float, ...]:
        """The weight of each network's scores, its own first; see `networks`."""
        return (self.own_weight, *(member.weight for member in self.members))

    def check_is_one(self) -> None:
        """Refuse a recipe of several networks where one is asked for: it would not be its model."""
        if self.members:
            raise InvalidRecipe(
                f"the recipe averages the predictions of {1 + len(self.members)} networks, so it is no single one: use "
                "`smatter predict`, or adapt with --mix weights"
            )

    def networks(self, modules: Iterable[str]) -> tuple["Recipe", ...]:
        """Each of its networks as a recipe of one, its own first.

        Args:
            modules: of the library.
        """
        names, found = tuple(modules), [self._alone(self.mixture, self.head)] if self.members else [self]
        for member in self.members:
            mixture, head = member.mixture, self.head
            if member.modules:
                mixture = branched(self.mixture, names, frozenset(member.modules), mixture)
            if head is not None and head.weight is not None:
                head = replace(head, weight=member.coefficients, bias=member.constants)
            found.append(self._alone(mixture, head))
        return tuple(found)

    def _alone(self, mixture: Mixture, head: ClassHead | None) -> "Recipe":
        mixture = mixture.without_idle()
        digests = {name: self.digests[name] for name in mixture.sources}
        notes = self.notes
        if notes.pins:  # what all of it composes is not what one of them does
            notes = notes.model_copy(update={"pins": notes.pins.model_copy(update={"result": None})})
        return replace(self, mixture=mixture, digests=digests, head=head, notes=notes, members=())

    @property
    def shares(self) -> dict[str, float]:
        """The share of the whole weight that each source with any carries, in its own network and in members."""
        found: dict[str, float] = {}
        mixtures = (self.mixture, *(member.mixture for member in self.members))
        for weight, mixture in zip(self.network_weights, mixtures, strict=True):
            for name in mixture.active_sources:
                column = mixture.sources.index(name)
                mean = sum(row[column] for row in mixture.rows) / len(mixture.rows)
                found[name] = found.get(name, 0.0) + weight * mean
        return found

    def lost_in(self, digests: Mapping[str, str]) -> dict[str, float]:
        """Sources with weight whose contents a library does not hold, and the share of the weight that each carries.

        Args:
            digests: content digest of each source of that library.
        """
        held = set(digests.values())
        return {name: share for name, share in self.shares.items() if self.digests[name] not in held}

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
        self.check_is_one()
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
            notes=self.notes.model_copy(update={"origin": origin, "pins": None, "sets": None}),
        )

    def _names(self, name: str, digests: Mapping[str, str]) -> list[str]:
        """Names in a library of a source's contents, its own first."""
        alike = [other for other, digest in digests.items() if digest == self.digests[name]]
        return sorted(alike, key=lambda other: other != name)
