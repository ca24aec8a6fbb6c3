"""What composing will read, compute and write, tensor by tensor, before anything is touched."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from smatter.compose.mixture import Mixture
from smatter.compose.residual import Residual
from smatter.errors import UnknownModule, UnknownSource
from smatter.records import Partition, TensorSpec


@dataclass(frozen=True)
class Term:
    """One source's share in a tensor; the weight is a float32 value, the one the arithmetic uses."""

    source: str
    weight: float


@dataclass(frozen=True)
class Step:
    """One tensor of the result: the sum of its terms in this order, plus its residual."""

    tensor: str
    spec: TensorSpec
    module: str
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Plan:
    """All steps in the order of the output, and the residual they refer to.

    A sum on the simplex stays between its sources; any other may leave what its dtype can hold (`may_overflow`).
    """

    steps: tuple[Step, ...]
    residual: Residual
    may_overflow: bool

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of the result."""
        return sum(step.spec.n_bytes for step in self.steps)

    @cached_property
    def n_bytes_read(self) -> int:
        """Bytes of source values the result depends on, at the result's precision."""
        return sum(step.spec.n_bytes * len(step.terms) for step in self.steps)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources the result depends on."""
        return tuple(dict.fromkeys(term.source for step in self.steps for term in step.terms))

    @cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """What each tensor of the result is."""
        return {step.tensor: step.spec for step in self.steps}

    def to_dict(self) -> dict[str, Any]:
        """Sizes and the weights of each module, for machines."""
        floating = (step for step in self.steps if step.spec.is_floating)
        modules = {step.module: {term.source: term.weight for term in step.terms} for step in floating}
        return {"n_bytes": self.n_bytes, "n_bytes_read": self.n_bytes_read, "modules": modules}

    def __str__(self) -> str:
        lines = []
        for module, group in groupby(self.steps, key=lambda step: step.module):
            steps = list(group)
            size = sum(step.spec.n_bytes for step in steps)
            mix = next((step.terms for step in steps if step.spec.is_floating), steps[0].terms)
            weights = " + ".join(f"{term.weight:.4g} {term.source}" for term in mix)
            touched = sum(step.tensor in self.residual.tensors for step in steps)
            correction = f" + correction of {touched} of them" if touched else ""
            lines.append(f"{module}: {len(steps)} tensors, {size / 1e6:.2f} MB = {weights}{correction}")
        total = f"{len(self.steps)} tensors, reads {self.n_bytes_read / 1e6:.2f} MB, writes {self.n_bytes / 1e6:.2f} MB"
        return "\n".join([*lines, total])


def make_plan(
    mixture: Mixture,
    specs: Mapping[str, TensorSpec],
    partition: Partition,
    digests: Mapping[str, str],
    residual: Residual | None = None,
) -> Plan:
    """Lay out the composition of a mixture and a residual.

    Terms are sorted by (content digest, weight) and terms of weight zero dropped, so that the result does not
    depend on the order or the names of the sources, and a source without weight is never read.

    Args:
        mixture: coefficients of the sources.
        specs: every tensor of the network, in the order of the output.
        partition: the modules the tensors belong to.
        digests: content digest of every source the mixture may name.
        residual: correction on top, if any.
    """
    for source in mixture.sources:
        if source not in digests:
            raise UnknownSource(f"no source is named {source!r}: the library has {', '.join(sorted(digests))}")
    for module in mixture.modules:
        if module not in partition.modules:
            raise UnknownModule(f"no module is named {module!r}: `smatter library list --modules` shows them")
    residual = residual or Residual()
    residual.check_fits(specs)
    terms = {module: _terms(mixture, module, digests) for module in partition.modules}
    steps = []
    for tensor, spec in specs.items():
        module = partition.module_of(tensor)
        mix = terms[module] if spec.is_floating else (Term(terms[module][0].source, 1.0),)
        steps.append(Step(tensor, spec, module, mix))
    return Plan(tuple(steps), residual, mixture.rule != "simplex" or bool(residual.tensors))


def _terms(mixture: Mixture, module: str, digests: Mapping[str, str]) -> tuple[Term, ...]:
    pairs = zip(mixture.sources, mixture.row(module), strict=True)
    terms = [Term(source, float(np.float32(weight))) for source, weight in pairs]
    active = [term for term in terms if term.weight != 0]
    # All coefficients zero is possible in arithmetic only; one term of weight zero then gives zeros.
    return tuple(sorted(active or terms[:1], key=lambda term: (digests[term.source], term.weight)))
