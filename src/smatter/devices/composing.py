"""What it costs to compose a model here: per source read, per module mixed, per residual applied, and bytes.

    cost = fixed + sum over modules l of (c_mix_l ||w_l||_0 + c_res_l [D_l != 0])        (multi-source paper, section 9)

A module's costs are a constant and a rate for its bytes; the five numbers are fitted to whole compositions. A residual
on a shared base is packed instead of composed: a constant and a rate for the bytes of the modules that it corrects.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from smatter.budget.latency import Floats
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Residual
from smatter.devices.profile import Composing
from smatter.devices.stacks import Bench
from smatter.library.library import Library
from smatter.records import Progress, silent
from smatter.runtime.packing import dense_values, pack

N_CASES, N_ROUNDS, N_PACKED = 24, 3, 12


def measure_composing(bench: Bench, generator: np.random.Generator, progress: Progress = silent) -> Composing:
    """Compose random mixtures and residuals, of which every third is held out, and pack some residuals.

    Args:
        bench: the network to compose into; in the end it has the base's weights again.
        generator: of the compositions.
        progress: told each composition.
    """
    library, resident = bench.library, bench.base.resident
    sizes = {
        module: sum(resident.specs[tensor].n_bytes for tensor in tensors)
        for module, tensors in library.partition.modules.items()
    }
    small = {
        tensor: np.full(spec.shape, 1e-6, np.float32) for tensor, spec in resident.specs.items() if spec.is_floating
    }
    cases = [_random_composition(library, small, generator) for _ in range(N_CASES)]
    taken = np.full((N_CASES, N_ROUNDS), np.inf)
    for number in range(N_ROUNDS):
        for case in generator.permutation(N_CASES):
            mixture, residual = cases[case]
            begin = time.perf_counter()
            resident.compose(mixture, residual)
            taken[case, number] = 1e3 * (time.perf_counter() - begin)
            progress(1)
    resident.compose(Mixture.of({library.manifest.base: 1.0}))
    design = np.stack([_features(library, sizes, mixture, residual) for mixture, residual in cases])
    times, is_held = np.median(taken, axis=1), np.arange(N_CASES) % 3 == 2
    found = _rates(design[~is_held], times[~is_held])
    off = float(np.median(np.abs(design[is_held] @ found / times[is_held] - 1)))
    names = ("fixed", "per_read", "per_byte", "per_correction", "per_corrected_byte")
    packing, per_packed_byte = _packing(bench, sizes, generator)
    return Composing(
        **dict(zip(names, found.tolist(), strict=True)),
        packing=packing,
        per_packed_byte=per_packed_byte,
        module_bytes=sizes,
        off=off,
    )


def _packing(bench: Bench, sizes: dict[str, int], generator: np.random.Generator) -> tuple[float, float]:
    """What it takes to pack a residual for a shared base, and for each byte of the modules that it corrects."""
    runtime, base = bench.runtime, bench.base
    design, times = [], []
    for seed in range(N_PACKED):
        stack = bench.random_stack(generator)
        residual = bench.residual(stack, seed)
        begin = time.perf_counter()
        pack(dense_values(residual, base.places, runtime.specs), base.places, base.tensors)
        times.append(1e3 * (time.perf_counter() - begin))
        design.append([1.0, sum(sizes[module] for module in residual.active_modules(bench.library.partition))])
    fixed, per_byte = _rates(np.array(design), np.array(times)).tolist()
    return fixed, per_byte


def _rates(design: Floats, times: Floats) -> Floats:
    """What each column of a design costs, none negative, with the least squares of relative errors."""
    from scipy.optimize import nnls  # a quarter of a second, which adapting does not need

    scale = np.maximum(design.max(axis=0), 1e-12)
    found, _ = nnls(design / scale / times[:, None], np.ones(len(times)))
    return np.asarray(found / scale)


def _random_composition(
    library: Library, small: dict[str, NDArray[np.float32]], generator: np.random.Generator
) -> tuple[Mixture, Residual | None]:
    """Some sources in each module, and a correction of some modules."""
    reach, share = generator.random(2)
    weights: dict[str, dict[str, float]] = {}
    dense: dict[str, NDArray[np.float32]] = {}
    for module, tensors in library.partition.modules.items():
        most = 1 + int(reach * len(library.names))
        names = library.names[: 1 + int(generator.integers(min(most, len(library.names))))]
        weights[module] = dict.fromkeys(names, 1 / len(names))
        if generator.random() < share:
            dense |= {tensor: small[tensor] for tensor in tensors if tensor in small}
    return Mixture.per_module(weights), Residual(dense=dense) if dense else None


def _features(library: Library, sizes: dict[str, int], mixture: Mixture, residual: Residual | None) -> list[float]:
    """What the five numbers are multiplied by."""
    n_sources = {module: sum(weight != 0 for weight in mixture.row(module)) for module in sizes}
    corrected = residual.active_modules(library.partition) if residual else ()
    read = sum(n * sizes[module] for module, n in n_sources.items())
    return [1.0, sum(n_sources.values()), read, len(corrected), sum(sizes[module] for module in corrected)]
