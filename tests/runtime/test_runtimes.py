"""Both runtimes, in every family of networks: a mixed batch gives each row what its task's own network gives it."""

import threading
import time
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from small_runtimes import FAMILIES, PECULIAR, inputs_of, make_library, random_residual, units
from torch import Tensor

from smatter.backbones.network import CHUNK
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidRecipe, InvalidResidual, InvalidSupport, NotFound
from smatter.library.edit import init_library
from smatter.library.library import Library
from smatter.live.mixture import Resident
from smatter.runtime.merged import MergedRuntime
from smatter.runtime.packing import dense_values, pack
from smatter.runtime.shared import SharedRuntime
from smatter.runtime.units import RankComponents

BASE = Mixture.of({"s0": 1.0})
HALF = Mixture.of({"s0": 0.5, "s1": 0.5})


@pytest.fixture(scope="module", params=FAMILIES)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library(request.param, tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library("vit", tmp_path_factory.mktemp("vit"))


def alone(library: Library, mixture: Mixture, residual, inputs: dict[str, Tensor]) -> Tensor:
    resident = Resident(library)
    resident.compose(mixture, residual)
    return resident.features(inputs)


def test_a_mixed_batch_gives_each_row_what_its_own_network_gives(library: Library) -> None:
    runtime = SharedRuntime(library, {"base": BASE, "half": HALF})
    merged = MergedRuntime(library)
    residuals = {f"task {number}": random_residual(runtime, seed=number, share=0.4) for number in range(3)}
    mixtures = {"task 0": BASE, "task 1": BASE, "task 2": HALF}
    for task, residual in residuals.items():
        for each in (runtime, merged):
            each.load(task, library.recipe(mixtures[task], residual))
    for each in (runtime, merged):
        each.load("plain", library.recipe(BASE))
    inputs = inputs_of(library, 7)
    tasks = ["task 1", "plain", "task 0", "task 2", "task 1", "task 2", "plain"]
    found, also = runtime.features(inputs, tasks), merged.features(inputs, tasks)
    for task in dict.fromkeys(tasks):
        rows = [row for row, name in enumerate(tasks) if name == task]
        expected = alone(
            library, mixtures.get(task, BASE), residuals.get(task), {k: v[rows] for k, v in inputs.items()}
        )
        torch.testing.assert_close(found[rows], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(also[rows], expected, atol=1e-5, rtol=1e-5)
    assert float((found[2] - alone(library, BASE, None, {k: v[2:3] for k, v in inputs.items()})[0]).abs().max()) > 1e-3
    assert 0 < runtime.n_bytes("task 0") < merged.n_bytes("task 0") and runtime.n_bytes("plain") == 0


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("family", [*FAMILIES, *PECULIAR])
def test_every_single_tensor_is_corrected_rightly_or_refused(family: str, tmp_path: Path) -> None:
    library = make_library(family, tmp_path)
    runtime, inputs, n_served = SharedRuntime(library, {"base": BASE}), inputs_of(library, 3), 0
    generator = np.random.default_rng(0)
    network = Resident(library)
    for name, spec in library.specs.items():
        if not spec.is_floating:
            continue
        values = generator.normal(0, 0.2, spec.shape).astype(np.float32)
        residual, kept = Residual(dense={name: values}), Residual(dense={name: values.copy()})
        try:
            runtime.load("task", library.recipe(BASE, residual))
        except InvalidResidual as error:
            assert "use the merged runtime" in str(error)
            continue
        n_served += 1
        runtime.load("plain", library.recipe(BASE))
        values[:] = 0  # what was loaded is a copy
        network.compose(BASE)
        plain = network.features(inputs)
        network.compose(BASE, kept)
        corrected = network.features(inputs)
        expected = torch.stack([corrected[0], plain[1], corrected[2]])
        torch.testing.assert_close(runtime.features(inputs, ["task", "plain", "task"]), expected, atol=2e-5, rtol=2e-5)
    assert n_served >= (16 if family in FAMILIES else 0 if family == "bit" else 3)  # BiT standardises all its weights


def test_pictures_are_prepared_as_the_base_wants_them(vit: Library, tmp_path: Path) -> None:
    shared, merged = SharedRuntime(vit, {"base": BASE}), MergedRuntime(vit)
    with pytest.raises(NotFound, match="load one first"):
        merged.prepare([])
    for runtime in (shared, merged):
        runtime.load("task", vit.recipe(BASE))
    pictures = [PIL.Image.new("RGB", (20, 10), (255, 0, 0)), PIL.Image.new("L", (3, 3))]
    for runtime in (shared, merged):
        inputs = runtime.prepare(pictures)
        assert inputs["pixel_values"].shape == (2, 3, 8, 8) and float(inputs["pixel_values"][0, 0].min()) == 1.0
        assert runtime.features(inputs, ["task"] * 2).shape[0] == 2
    pictures[0].save(tmp_path / "red.png")
    torch.testing.assert_close(shared.prepare([str(tmp_path / "red.png")])["pixel_values"], inputs["pixel_values"][:1])
    with pytest.raises(InvalidSupport, match=r"by name, \{"):
        shared.features(pictures, ["task"] * 2)
    with pytest.raises(InvalidSupport, match="8 x 8"):
        shared.prepare(torch.zeros(1, 3, 9, 9))


def test_positions_that_are_stretched_need_the_merged_runtime(tmp_path: Path) -> None:
    library = make_library("dinov2", tmp_path)
    runtime = SharedRuntime(library, {"base": BASE})
    name = "embeddings.position_embeddings"
    runtime.load("task", library.recipe(BASE, Residual(dense={name: np.ones(library.specs[name].shape, np.float32)})))
    runtime.load("plain", library.recipe(BASE))
    runtime.features({"pixel_values": torch.zeros(1, 3, 8, 8)}, ["task"])
    for shape in ((4, 16), (12, 12)):  # as many patches in another order, and more of them
        inputs = {"pixel_values": torch.zeros(1, 3, *shape)}
        with pytest.raises(InvalidResidual, match="use the merged runtime"):
            runtime.features(inputs, ["task"])
        runtime.features(inputs, ["plain"])


def test_gates_open_units_of_a_shared_delta(library: Library) -> None:
    bare = SharedRuntime(library, {"base": BASE, "half": HALF})
    delta = random_residual(bare, seed=5, share=1.0)
    runtime = SharedRuntime(library, {"base": BASE, "half": HALF}, shared=delta)
    generator = np.random.default_rng(3)
    expected = {name: np.zeros_like(values) for name, values in delta.dense.items()}
    far: dict[str, list[float]] = {}
    every_unit = iter(units(runtime))
    for module, n_units in runtime.shared["base"].n_units.items():
        far[module] = (generator.choice([0.0, 0.0, 0.5, 0.3], size=n_units)).tolist()
        for gate in far[module]:
            for tensor, index in next(every_unit):
                expected[tensor][index] += np.float32(gate) * delta.dense[tensor][index]
    for mixture, name in ((BASE, "base"), (HALF, "half")):
        runtime.open(name, far, name)
        bare.load(name, library.recipe(mixture, Residual(dense=expected)))
    inputs = inputs_of(library, 4)
    ours, theirs = (each.features(inputs, ["half", "base", "half", "base"]) for each in (runtime, bare))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert runtime.n_bytes("base") < bare.n_bytes("base") / 3
    packed, base = runtime.shared["half"].packed(far), runtime.bases["half"]
    torch.testing.assert_close(base.features(inputs, [(0, 4, packed)])[[0, 2]], ours[[0, 2]], atol=1e-5, rtol=1e-5)


def test_gates_open_rank_components_of_a_shared_delta(library: Library) -> None:
    bare, rank = SharedRuntime(library, {"base": BASE}), 3
    (base,), generator = bare.bases.values(), torch.Generator().manual_seed(0)
    factors, far, dense = {}, {}, {}
    for disk, place in base.places.items():
        if place.kind == "linear" and disk == place.key:
            n_out, n_in = base.tensors[disk].T.shape if place.is_transposed else base.tensors[disk].shape
            factors[disk] = torch.randn(n_out, rank, generator=generator), torch.randn(rank, n_in, generator=generator)
            far[disk] = (0.1 * torch.randint(0, 3, (rank,), generator=generator)).tolist()
            change = factors[disk][0] * torch.tensor(far[disk]) @ factors[disk][1]
            dense[disk] = (change.T if place.is_transposed else change).contiguous().numpy()
    runtime = SharedRuntime(library, {"base": BASE}, shared=RankComponents(factors))
    runtime.open("gated", far)
    runtime.open("closed", {})
    inputs, residual = inputs_of(library, 4), Residual(dense=dense)
    found = runtime.features(inputs, ["gated", "closed", "gated", "closed"])
    torch.testing.assert_close(found[[0, 2]], alone(library, BASE, residual, inputs)[[0, 2]], atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(found[[1, 3]], alone(library, BASE, None, inputs)[[1, 3]], atol=1e-5, rtol=1e-5)
    packed = runtime.bases["base"].features(inputs, [(0, 4, runtime.shared["base"].packed(far))])
    torch.testing.assert_close(packed[[0, 2]], found[[0, 2]], atol=2e-4, rtol=1e-4)
    assert 0 < runtime.n_bytes("gated") <= 24 * rank * len(factors)


def test_rank_components_that_fit_nowhere_are_refused(vit: Library) -> None:
    name = "encoder.layer.0.intermediate.dense.weight"
    left, right = torch.ones(40, 2), torch.ones(2, 16)
    for factors, words in (
        ({}, "at least one operator"),
        ({name: (left, right.T)}, "are not B"),
        ({name: (left * float("nan"), right)}, "NaN"),
    ):
        with pytest.raises(InvalidResidual, match=words):
            RankComponents(factors)
    for disk, words in (("nowhere", "no linear operator 'nowhere'"), ("layernorm.weight", "no linear operator")):
        with pytest.raises(InvalidResidual, match=words):
            SharedRuntime(vit, {"base": BASE}, shared=RankComponents({disk: (left, right)}))
    with pytest.raises(InvalidResidual, match="make 16 x 40, not"):
        SharedRuntime(vit, {"base": BASE}, shared=RankComponents({name: (right.T, left.T)}))
    runtime = SharedRuntime(vit, {"base": BASE}, shared=RankComponents({name: (left, right)}))
    with pytest.raises(InvalidResidual, match="has 2 units, not 3"):
        runtime.open("task", {name: [1.0, 0.0, 1.0]})


@pytest.mark.parametrize("family", ["vit", "llama", "convnext"])
def test_half_precision_is_close_to_whole(family: str, tmp_path: Path) -> None:
    library = make_library(family, tmp_path)
    whole, half = (SharedRuntime(library, {"base": BASE}, dtype) for dtype in ("F32", "BF16"))
    merged = MergedRuntime(library, "BF16")
    inputs, found = inputs_of(library, 4), []
    operator = next(place.key for place in whole.bases["base"].places.values() if place.kind == "linear")
    spot = Elements(np.array([3]), np.array([5.0], np.float32))
    tasks = {"groups": random_residual(whole, 1, 0.5), "element": Residual({operator: spot})}
    for runtime in (whole, half, merged):
        for name, residual in tasks.items():
            runtime.load(name, library.recipe(BASE, residual))
        found.append(runtime.features(inputs, ["groups", "element"] * 2).float())
    plain = Resident(library).features(inputs)
    for rows in ([0, 2], [1, 3]):
        changed = float((found[0][rows] - plain[rows]).abs().mean())
        for other in found[1:]:
            assert float((other[rows] - found[0][rows]).abs().mean()) < 0.2 * changed


def test_large_batches_are_passed_in_parts(vit: Library) -> None:
    runtime, generator = SharedRuntime(vit, {"base": BASE}), np.random.default_rng(0)
    residuals = {f"task {number}": random_residual(runtime, number, 0.4) for number in range(3)}
    for name, residual in residuals.items():
        runtime.load(name, vit.recipe(BASE, residual))
    tasks = [f"task {number}" for number in generator.integers(3, size=2 * CHUNK + 5)]
    inputs = inputs_of(vit, len(tasks))
    found = runtime.features(inputs, tasks)
    for name, residual in residuals.items():
        rows = [row for row, task in enumerate(tasks) if task == name]
        expected = alone(vit, BASE, residual, {key: tensor[rows] for key, tensor in inputs.items()})
        torch.testing.assert_close(found[rows], expected, atol=1e-5, rtol=1e-5)


def test_a_mixture_is_found_in_the_catalogue_whatever_the_order(vit: Library) -> None:
    runtime = SharedRuntime(vit, {"half": HALF})
    runtime.load("task", vit.recipe(Mixture.of({"s1": 0.5, "s0": 0.5})))
    assert runtime.tasks == ("task",)


@pytest.mark.parametrize("form", ["RankFactors", "ScatteredElements", "Rows", "Columns"])
def test_each_operator_has_the_form_of_the_fewest_numbers(library: Library, form: str) -> None:
    runtime = SharedRuntime(library, {"base": BASE})
    (base,), generator = runtime.bases.values(), np.random.default_rng(4)
    operators = [place for place in base.places.values() if place.kind == "linear"]
    place = max(operators, key=lambda place: runtime.specs[place.key].n_elements)
    name = place.key
    shape = runtime.specs[name].shape
    dense = generator.standard_normal(shape).astype(np.float32)
    if form == "RankFactors":
        dense = (0.2 * dense[:, :1] @ dense[:1, :]).astype(np.float32)
    if form == "ScatteredElements":
        dense = np.where(np.eye(*shape, dtype=bool) & (np.arange(shape[1]) < 3), dense, 0)
    if form in ("Rows", "Columns"):
        kept = np.zeros(shape, np.float32)
        if (form == "Rows") != place.is_transposed:
            kept[[1, 2, 5]] = dense[[1, 2, 5]]
        else:
            kept[:, [1, 2, 5]] = dense[:, [1, 2, 5]]
        dense = kept
    residual = Residual(dense={name: dense})
    terms = pack(dense_values(residual, base.places, runtime.specs), base.places, base.tensors).terms
    assert [type(term).__name__ for term in terms[place.key]] == [form]
    runtime.load("task", library.recipe(BASE, residual))
    inputs = inputs_of(library, 2)
    expected = alone(library, BASE, residual, inputs)
    torch.testing.assert_close(runtime.features(inputs, ["task"] * 2), expected, atol=1e-5, rtol=1e-5)


def test_what_cannot_be_served_is_refused_with_the_remedy(vit: Library) -> None:
    runtime = SharedRuntime(vit, {"base": BASE})
    with pytest.raises(InvalidRecipe, match="not in the catalogue"):
        runtime.load("other", vit.recipe(HALF))
    with pytest.raises(NotFound, match="'nobody' is loaded"):
        runtime.features(inputs_of(vit, 1), ["nobody"])
    with pytest.raises(NotFound, match="'nobody'"):
        runtime.unload("nobody")
    with pytest.raises(InvalidSupport, match="3 rows of pixel_values and 1 names"):
        runtime.features(inputs_of(vit, 3), ["nobody"])
    with pytest.raises(InvalidSupport, match="2 rows of mask and 3 names"):
        runtime.features({**inputs_of(vit, 3), "mask": torch.ones(2, 1)}, ["nobody"] * 3)
    with pytest.raises(InvalidRecipe, match="no shared delta"):
        runtime.open("gated", {})
    with pytest.raises(InvalidRecipe, match="at least one mixture"):
        SharedRuntime(vit, {})
    gated = SharedRuntime(vit, {"base": BASE}, shared=random_residual(runtime, 0, 1.0))
    with pytest.raises(InvalidResidual, match="has 4 units, not 2"):
        gated.open("gated", {"encoder.layer.0.mlp": [0.0, 1.0]})
    with pytest.raises(InvalidResidual, match="'nowhere' has no units"):
        gated.open("gated", {"nowhere": [0.0, 1.0]})
    with pytest.raises(InvalidResidual, match="NaN"):
        gated.open("gated", {"encoder.layer.0.mlp": [0.0, 1.0, float("nan"), 0.0]})
    with pytest.raises(InvalidRecipe, match="the catalogue has no 'half'"):
        gated.open("gated", {}, "half")
    assert runtime.tasks == ()


def test_what_is_the_same_for_all_rows_or_zero_needs_the_merged_runtime(tmp_path: Path) -> None:
    bert, convnext = (make_library(family, tmp_path / family) for family in ("bert", "convnext"))
    for library, tensor in ((bert, "embeddings.word_embeddings.weight"), (convnext, "layer_scale_parameter")):
        name = next(name for name in library.specs if name.endswith(tensor))
        residual = Residual(dense={name: np.ones(library.specs[name].shape, np.float32)})
        runtime = SharedRuntime(library, {"base": BASE})
        if library is convnext:
            runtime.bases["base"].tensors[name][0] = 0
        with pytest.raises(InvalidResidual, match="use the merged runtime"):
            runtime.load("task", library.recipe(BASE, residual))
        MergedRuntime(library).load("task", library.recipe(BASE, residual))


@pytest.mark.parametrize("kind", [SharedRuntime, MergedRuntime])
def test_tasks_come_and_go_while_others_are_served(vit: Library, kind: type) -> None:
    runtime = SharedRuntime(vit, {"base": BASE}) if kind is SharedRuntime else MergedRuntime(vit)
    maker = SharedRuntime(vit, {"base": BASE})
    recipes = [vit.recipe(BASE, random_residual(maker, seed, 0.5)) for seed in range(4)]
    inputs = inputs_of(vit, 4)
    answers = [alone(vit, BASE, recipe.residual, inputs) for recipe in recipes]
    runtime.load("steady", recipes[0])
    runtime.load("changing", recipes[1])
    mistakes: list[str] = []
    n_batches, n_missing = [0, 0], [0, 0]
    ended = threading.Event()

    def off(found: Tensor, rows: list[int], answer: Tensor) -> float:
        return float((found[rows] - answer[rows]).abs().max())

    def serve(number: int) -> None:
        while not ended.is_set():
            found = runtime.features(inputs, ["steady", "changing", "steady", "changing"])
            n_batches[number] += 1
            if off(found, [0, 2], answers[0]) > 1e-5:
                mistakes.append("steady")
            if min(off(found, [1, 3], answer) for answer in answers[1:]) > 1e-5:  # both rows from one version
                mistakes.append("changing")
            try:
                brief = runtime.features(inputs, ["brief", "steady", "brief", "steady"])
                if off(brief, [0, 1, 2, 3], answers[0]) > 1e-5:
                    mistakes.append("brief")
            except NotFound:
                n_missing[number] += 1

    def change(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for turn in range(12):
            runtime.load("changing", recipes[1 + int(generator.integers(3))])
            if seed == 0:
                runtime.load("brief", recipes[0])
                time.sleep(0.002)
                runtime.unload("brief")
            runtime.load(f"other {seed} {turn}", recipes[2])
            runtime.unload(f"other {seed} {turn}")

    servers = [threading.Thread(target=serve, args=(number,)) for number in range(2)]
    changers = [threading.Thread(target=change, args=(seed,)) for seed in range(2)]
    for thread in (*servers, *changers):
        thread.start()
    for thread in changers:
        thread.join()
    ended.set()
    for thread in servers:
        thread.join()
    assert not mistakes and set(runtime.tasks) == {"steady", "changing"}
    assert min(n_batches) > 0 and sum(n_missing) > 0


def test_a_bias_in_another_module_than_its_weight_is_served_too(tmp_path: Path) -> None:
    """Each tensor is a module of its own: a user's pattern may say so."""
    whole = make_library("vit", tmp_path)
    library = init_library(tmp_path / "apart", whole.base.folder, "s0", module_pattern=r"^(.+)$")
    bare = SharedRuntime(library, {"base": BASE})
    cut = {part.tensor for units in bare.numbering.units.values() for group in units.groups for part in group.slices}
    dense = {}
    for name, values in random_residual(bare, seed=5, share=1.0).dense.items():
        place = bare.bases["base"].places[name]
        if not (place.kind == "linear" and place.tensors.get("bias") in cut):
            dense[name] = values
    delta = Residual(dense=dense)
    runtime = SharedRuntime(library, {"base": BASE}, shared=delta)
    runtime.open("all", {module: [1.0] * n_units for module, n_units in runtime.shared["base"].n_units.items()})
    bare.load("all", library.recipe(BASE, delta))
    inputs = inputs_of(library, 3)
    torch.testing.assert_close(
        runtime.features(inputs, ["all"] * 3), bare.features(inputs, ["all"] * 3), atol=1e-5, rtol=1e-5
    )
    assert any(name.endswith("bias") for name in dense)
