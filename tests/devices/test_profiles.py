"""Profiles: what is measured, what is refused, how an old one is adjusted, and which runtime one recommends."""

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_runtimes import make_library
from torch import Tensor

from smatter.budget.latency import LatencyModel, ModuleCost
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Elements, Residual
from smatter.devices import fingerprint as fingerprints
from smatter.devices import timing
from smatter.devices.active import active_fractions
from smatter.devices.choice import TaskLoad, choose_runtime
from smatter.devices.composing import measure_composing
from smatter.devices.fingerprint import Fingerprint
from smatter.devices.measure import choose_epsilon, correct_profile, fit_model, measure_profile
from smatter.devices.profile import Composing, Profile, read_profile, write_profile
from smatter.devices.stacks import Bench, make_bench
from smatter.devices.timing import LEAST_WIDER, Neighbours, Timed, is_quiet, time_cases
from smatter.devices.unmeasured import counted_profile, micro_profile, table_profile
from smatter.errors import InvalidProfile, InvalidSettings, NotFound
from smatter.library.library import Library
from smatter.report.profiled import profile_page
from smatter.settings.devices import DeviceSetting, MeasureSettings
from smatter.units.numbering import REST

MLP = "encoder.layer.0.mlp"
HERE = Fingerprint(device="a", cores=2, capability="b", torch="2", transformers="5", threads=1, batch=8,
                   dtype="F32", length=8, network="0" * 64)  # fmt: skip
COMPOSING = Composing(fixed=1.0, per_read=0.1, per_byte=0.001, per_correction=0.2, per_corrected_byte=0.002,
                      packing=2.0, per_packed_byte=0.03, module_bytes={MLP: 100, "norm": 10}, off=0.0)  # fmt: skip
PROFILE = Profile(unit="ms", method="stacks", fingerprint=HERE, base=10.0, costs={MLP: (0.1, 0.1, 0.1, 0.2, 0.4)},
                  kappa=1.1, epsilon=0.5, rows={1: 3.0, 16: 18.0}, per_task=0.5,
                  composing=COMPOSING)  # fmt: skip
FEW = MeasureSettings(n_fitted=20, n_calibrated=10, n_tested=5, seconds=1.0)


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library("vit", tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def bench(vit: Library) -> Bench:
    return Bench(vit, DeviceSetting(batch=2))


@pytest.fixture(scope="module")
def measured(vit: Library) -> Profile:
    shares: list[float] = []
    profile = measure_profile(vit, DeviceSetting(batch=2), FEW, shares.append)
    assert sum(shares) == pytest.approx(1.0)
    return profile


def test_a_profile_says_all_of_itself_and_comes_back_from_its_file(measured: Profile, tmp_path: Path) -> None:
    assert measured.quality and measured.base > 0 and measured.kappa > 0 and 0 <= measured.quality.coverage <= 1
    assert measured.fingerprint.batch == 2 and measured.fingerprint.length == 8
    assert {MLP, MLP + REST, "encoder.layer.1.attention"} <= measured.costs.keys()
    assert 0 <= measured.per_task <= 1
    assert set(measured.rows) == {1, 4, 16} and len(measured.points) == 5
    assert measured.composing and measured.composing.fixed >= 0
    write_profile(tmp_path / "p.json", measured)
    assert read_profile(tmp_path / "p.json") == measured
    page = profile_page(measured)
    assert "Predicted and measured" in page and page.count("<circle") == 5


@pytest.mark.parametrize("family", ["bert", "convnext", "gpt2", "llama"])
def test_every_family_can_be_profiled(family: str, tmp_path: Path) -> None:
    bench = Bench(make_library(family, tmp_path), DeviceSetting(batch=2, length=None if family == "convnext" else 6))
    stack = dict.fromkeys(bench.kinds, 1.0)
    assert bench.deltas(stack, 0).n_bytes > 0
    bench.case(stack, 0)()
    profile = micro_profile(bench)
    assert profile.predict(stack)[0] > 1.01 * profile.base  # all groups at once are not free


def test_rank_components_can_be_profiled(vit: Library, tmp_path: Path) -> None:
    bench = make_bench(vit, DeviceSetting(batch=2, rank=4))
    operators = [place for place in bench.base.places.values() if place.kind == "linear"]
    assert len(bench.kinds) == len(set(operators)) and set(bench.n_groups.values()) == {4} and not bench.rests
    operator = "encoder.layer.0.intermediate.dense.weight"
    n_bytes = {share: bench.deltas({operator: share}, 0).n_bytes for share in (0.25, 1.0)}
    assert n_bytes[1.0] == 4 * n_bytes[0.25] == 4 * 4 * (16 + 40)
    assert np.linalg.matrix_rank(bench.residual({operator: 0.5}, 0).dense[operator]) == 2
    profile = measure_profile(vit, DeviceSetting(batch=2, rank=4), FEW)
    assert profile.predict({operator: 1.0})[0] >= profile.base and profile.fingerprint.rank == 4
    write_profile(tmp_path / "p.json", profile)
    assert read_profile(tmp_path / "p.json", vit, DeviceSetting(batch=2, rank=4)) == profile
    with pytest.raises(InvalidProfile, match="of other units"):
        read_profile(tmp_path / "p.json", vit, DeviceSetting(batch=2))


def test_half_precision_can_be_profiled(vit: Library) -> None:
    bench = Bench(vit, DeviceSetting(batch=2, dtype="BF16"))
    bench.case({MLP: 1.0, MLP + REST: 1.0}, 0)()
    assert bench.fingerprint.dtype == "BF16"


def test_stacks_have_as_many_active_groups_as_they_say(bench: Bench) -> None:
    heads = "encoder.layer.0.attention"
    whole, half = (bench.deltas({heads: share}, 0).n_bytes for share in (1.0, 0.5))
    assert bench.n_groups[heads] == 2 and half == whole / 2
    generator = np.random.default_rng(0)
    stacks = [bench.random_stack(generator) for _ in range(50)]
    assert all(0 < share <= 1 for stack in stacks for share in stack.values())
    assert {name for stack in stacks for name in stack} == set(bench.kinds)


def spin(stop: float) -> None:
    while time.monotonic() < stop:
        pass


def test_a_neighbour_that_takes_a_core_is_noticed() -> None:
    def run(milliseconds: float) -> Callable[[], object]:
        return lambda: time.sleep(milliseconds / 1000)

    neighbour = multiprocessing.get_context("fork").Process(target=spin, args=(time.monotonic() + 1.5,))
    neighbour.start()
    timed = time_cases(run(5), [lambda: run(10), lambda: run(20)], 20, np.random.default_rng(0))
    neighbour.join()
    assert timed.others is not None and timed.others > 0.5 and not is_quiet(timed.others)


def test_others_use_what_this_process_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for busy, expected in ((30.0, 0.5), (20.0, 0.0)):
        readings, clock = iter([(100.0, 7.0), (100.0 + busy, 27.0)]), iter([0.0, 20.0])
        monkeypatch.setattr(timing, "_processor_times", lambda readings=readings: next(readings))
        monkeypatch.setattr("smatter.devices.timing.time.perf_counter", lambda clock=clock: next(clock))
        assert Neighbours().cores() == pytest.approx(expected)
        monkeypatch.undo()


@pytest.mark.parametrize(("n_busy", "is_noticed"), [(0, False), (1, False), (4, True), (20, True)])
def test_a_neighbour_is_noticed_in_part_of_the_rounds(
    n_busy: int, is_noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = iter([1.0] * n_busy + [0.0] * (20 - n_busy))
    monkeypatch.setattr(Neighbours, "cores", lambda _: next(used))
    timed = time_cases(lambda: None, [lambda: lambda: None] * 3, 20, np.random.default_rng(0))
    assert is_quiet(timed.others) != is_noticed


def test_a_profile_of_a_busy_machine_says_so_and_has_a_wider_bound(
    vit: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smatter.devices import measure

    generator = np.random.default_rng(0)
    ratios, bases = 1 + 0.1 * generator.random((35, 5)), np.array([1.0] * 90 + [2.0] * 10)

    def bound(others: float) -> Profile:
        monkeypatch.setattr(measure, "time_stacks", lambda _, stacks, *__: Timed(ratios[: len(stacks)], bases, others))
        monkeypatch.setattr(measure.Neighbours, "cores", lambda _: 0.0)
        return measure_profile(vit, DeviceSetting(batch=2), FEW)

    quiet, busy = bound(0.01), bound(0.5)
    assert quiet.is_quiet and not busy.is_quiet
    assert busy.kappa == pytest.approx(2 * quiet.kappa)
    monkeypatch.setattr(measure.Neighbours, "cores", lambda _: 0.7)  # once the stacks have been timed
    assert measure_profile(vit, DeviceSetting(batch=2), FEW).others == 0.7


def test_a_steady_neighbour_widens_the_bound_too_and_spare_processors_are_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steady = Timed(np.ones((3, 5)), np.ones(20), 1.0)
    assert steady.wider_by(1.0) == LEAST_WIDER and steady.wider_by(0.01) == steady.wider_by(None) == 1
    monkeypatch.setattr("os.cpu_count", lambda: 65)
    assert is_quiet(10.0) and not is_quiet(20.0)


def test_ratios_are_to_the_base_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    speed = 1.0

    def seconds(work: Callable[[], float]) -> float:
        nonlocal speed
        speed *= 1.001  # the clock drifts
        return speed * work()

    monkeypatch.setattr("smatter.devices.timing.seconds", seconds)
    cases = [lambda ratio=ratio: lambda: ratio for ratio in (1.5, 2.0, 3.0)]
    timed = time_cases(lambda: 1.0, cases, 50, np.random.default_rng(0))
    assert timed.ratios.shape == (3, 50) and len(timed.base_seconds) == 50 * 3
    assert timed.quantile(0.5) == pytest.approx([1.5, 2.0, 3.0], rel=2e-3)
    assert timed.base_seconds[-1] > 1.2 * timed.base_seconds[0]


def test_what_falls_to_every_task_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from smatter.devices import measure

    extra = np.linspace(0.1, 1, measure.SPLIT_STACKS)
    n_rows, share = bench.setting.batch, 0.3
    ratios = 1 + np.concatenate([extra, extra * (1 - share + n_rows * share)])[:, None]
    monkeypatch.setattr(measure, "time_cases", lambda *_: Timed(ratios, np.ones(3), None))
    assert measure.time_split(bench, np.random.default_rng(0)) == pytest.approx(share)


def test_what_falls_to_every_task_is_taken_from_the_largest_stacks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smatter.devices import measure

    split: list[int] = []
    monkeypatch.setattr(bench, "split_case", lambda stack: split.append(bench.deltas(stack, 0).n_bytes))

    def prepare(_: object, cases: list[Callable[[], object]], *__: object) -> Timed:
        for case in cases:
            case()
        return Timed(np.full((len(cases), 1), 1.5), np.ones(3), None)

    monkeypatch.setattr(measure, "time_cases", prepare)
    measure.time_split(bench, np.random.default_rng(0))
    generator = np.random.default_rng(0)
    drawn = [bench.deltas(bench.random_stack(generator), 0).n_bytes for _ in range(measure.SPLIT_DRAWN)]
    assert split == sorted(drawn)[-measure.SPLIT_STACKS :] and len(split) < len(drawn)


@pytest.mark.parametrize(("run_seconds", "quantile", "expected"), [(0.05, 0.5, 6), (0.5, 0.5, 4), (0.5, 0.95, 20)])
def test_stacks_are_timed_as_often_as_there_is_time_for(
    run_seconds: float, quantile: float, expected: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smatter.devices import measure

    n_passes = 0

    def run() -> None:
        nonlocal n_passes
        n_passes += 1

    monkeypatch.setattr(bench, "plain", lambda: run)
    monkeypatch.setattr(bench, "case", lambda *_: run)
    monkeypatch.setattr("smatter.devices.measure.time.perf_counter", lambda: n_passes * run_seconds)
    stacks = [bench.random_stack(np.random.default_rng(0))] * 200
    assert measure._n_rounds(bench, stacks, MeasureSettings(n_tested=10, seconds=110.0, quantile=quantile)) == expected


def test_what_bends_is_found_only_where_it_is_there() -> None:
    generator = np.random.default_rng(0)
    kinds = {f"module {number}": "one" for number in range(4)}
    stacks = [
        {module: float(share) for module, share in zip(kinds, generator.uniform(0.1, 1, 4), strict=True)}
        for _ in range(200)
    ]
    straight = LatencyModel(dict.fromkeys(kinds, ModuleCost(0.1, (0.1, 0.1, 0.2, 0.4))))
    noise = 0.005 * generator.standard_normal(len(stacks))
    assert fit_model(stacks, straight.relative(stacks) + noise, kinds).bend == 0
    for bend in (-0.4, 0.2):
        bent = LatencyModel(straight.costs, bend)
        found = fit_model(stacks, bent.relative(stacks) + noise, kinds)
        assert found.bend == bend and found.relative(stacks) == pytest.approx(bent.relative(stacks), rel=0.02)


def test_an_offset_is_chosen_where_errors_do_not_grow() -> None:
    generator = np.random.default_rng(0)
    predicted = generator.uniform(1, 10, 300)
    assert choose_epsilon(predicted, predicted + 0.05 * generator.random(300), 0.1) > 0
    assert choose_epsilon(predicted, predicted * (1 + 0.05 * generator.random(300)), 0.1) <= 0.005


def test_predictions_bounds_and_rows() -> None:
    assert PROFILE.predict({MLP: 1.0})[0] == pytest.approx(19.0)
    assert PROFILE.bound([{}, {MLP: 1.0}]) == pytest.approx([11.5, 21.4])
    assert [PROFILE.base_of(n) for n in (1, 8, 12, 16, 32)] == pytest.approx([3, 10, 14, 18, 34])
    with pytest.raises(InvalidProfile, match="knows no module 'x'"):
        PROFILE.predict({"x": 1.0})


def test_composing_costs_sum_over_modules(bench: Bench) -> None:
    assert COMPOSING.c_mix(MLP) == pytest.approx(0.2) and COMPOSING.c_res("norm") == pytest.approx(0.22)
    assert COMPOSING.cost({MLP: 2, "norm": 1}, [MLP]) == pytest.approx(1 + 2 * 0.2 + 0.11 + 0.4)
    with pytest.raises(InvalidProfile, match="knows no module"):
        COMPOSING.c_mix("x")
    assert COMPOSING.packing_cost([MLP]) == pytest.approx(5.0)
    found = measure_composing(bench, np.random.default_rng(0))
    assert found.cost(dict.fromkeys(found.module_bytes, 2), []) > 0
    assert found.packing_cost(found.module_bytes) > 0


def test_known_costs_of_composing_are_found_again(vit: Library, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = measure_composing(bench, np.random.default_rng(0)).module_bytes
    truth = Composing(fixed=2.0, per_read=0.1, per_byte=1e-4, per_correction=0.3, per_corrected_byte=2e-4,
                      packing=0.0, per_packed_byte=0.0, module_bytes=sizes, off=0.0)  # fmt: skip
    clock = 0.0

    def compose(mixture: Mixture, residual: Residual | None = None) -> None:
        nonlocal clock
        n_sources = {module: sum(weight > 0 for weight in mixture.row(module)) for module in sizes}
        corrected = residual.active_modules(vit.partition) if residual else ()
        clock += truth.cost(n_sources, corrected) / 1e3

    monkeypatch.setattr(bench.base.resident, "compose", compose)

    def packed(values: dict[str, Tensor], *_: object) -> None:
        nonlocal clock
        clock += (
            3.0 + 2e-4 * sum(sizes[module] for module in {vit.partition.module_of(name) for name in values})
        ) / 1e3

    monkeypatch.setattr("smatter.devices.composing.time.perf_counter", lambda: clock)
    monkeypatch.setattr("smatter.devices.composing.pack", packed)
    found = measure_composing(bench, np.random.default_rng(0))
    assert (found.packing, found.per_packed_byte) == pytest.approx((3.0, 2e-4), rel=1e-3)
    for module in sizes:
        assert found.c_mix(module) == pytest.approx(truth.c_mix(module), rel=1e-3)
        assert found.c_res(module) == pytest.approx(truth.c_res(module), rel=1e-3)
    assert found.off < 1e-6


def test_another_device_setting_or_network_is_refused_and_can_be_allowed_for() -> None:
    there = HERE.model_copy(update={"threads": 2, "torch": "3"})
    with pytest.raises(InvalidProfile, match=r"torch 2, not 3; threads 1, not 2.*--from"):
        PROFILE.check(there)
    PROFILE.check(HERE)
    careful = PROFILE.with_margin(there, 1.5)
    careful.check(there)
    assert careful.bound({})[0] == pytest.approx(1.5 * PROFILE.bound({})[0]) and careful.quality is None
    assert careful.base_of(1) == pytest.approx(4.5) and careful.composing
    assert careful.composing.cost({MLP: 2}, []) == pytest.approx(1.5 * COMPOSING.cost({MLP: 2}, []))
    with pytest.raises(InvalidProfile, match="not for other rows"):
        PROFILE.with_margin(HERE.model_copy(update={"batch": 4}), 1.5)
    with pytest.raises(InvalidProfile, match="in mJ cannot"):
        PROFILE.model_copy(update={"unit": "mJ"}).with_margin(there, 1.5)
    with pytest.raises(InvalidProfile, match=r"set_num_threads\(1\)"):
        PROFILE.check(HERE.model_copy(update={"threads": 2}))
    with pytest.raises(InvalidProfile, match="another network"):
        PROFILE.with_margin(HERE.model_copy(update={"network": "1" * 64}), 2.0)
    with pytest.raises(InvalidProfile, match="not between"):
        PROFILE.with_margin(there, 0.5)


@pytest.mark.parametrize("bend", [-0.4, 0.0, 0.3])
def test_a_profile_is_corrected_by_a_factor_and_an_offset(bend: float, tmp_path: Path) -> None:
    there, old = HERE.model_copy(update={"threads": 2}), PROFILE.model_copy(update={"bend": bend})
    stacks = [{MLP: share} for share in np.linspace(0.05, 1, 20)]
    truth = 250 + 0.4 * (old.predict(stacks) - 10)
    corrected = old.corrected(there, stacks, truth, 1.2 * truth, 0.95, 0.1)
    assert corrected.predict(stacks) == pytest.approx(truth)
    assert corrected.bound(stacks) == pytest.approx(1.2 * truth, rel=0.02)
    assert corrected.quantile == 0.95 and corrected.epsilon == pytest.approx(12.5) and not corrected.rows
    write_profile(tmp_path / "p.json", corrected)
    assert read_profile(tmp_path / "p.json") == corrected
    with pytest.raises(InvalidProfile, match="measure 18 or more"):
        old.corrected(there, stacks[:17], truth[:17], truth[:17], 0.5, 0.1)
    with pytest.raises(InvalidProfile, match="do not fit"):
        old.corrected(there, stacks, truth[::-1], truth, 0.5, 0.1)
    with pytest.raises(InvalidProfile, match="in mJ cannot"):
        old.model_copy(update={"unit": "mJ"}).corrected(there, stacks, truth, truth, 0.5, 0.1)


def test_a_corrected_bound_holds_as_often_as_it_promises() -> None:
    generator, held = np.random.default_rng(0), []
    for _ in range(300):
        stacks = [{MLP: float(share)} for share in generator.uniform(0.05, 1, 25)]
        measured = PROFILE.predict(stacks) * generator.lognormal(0, 0.05, 25)
        corrected = PROFILE.corrected(HERE, stacks[:24], measured[:24], measured[:24], 0.5, 0.1)
        held.append(bool(measured[24] <= corrected.bound(stacks[24])[0]))
    assert np.mean(held) > 0.88


def test_an_old_profile_is_corrected_by_measuring(measured: Profile, bench: Bench) -> None:
    old = measured.model_copy(update={"base": 100 * measured.base, "rows": {}})
    corrected = correct_profile(bench, old, 18, 0.5, 0.1)
    assert corrected.base < 0.1 * old.base and corrected.record["corrected_with_points"] == 18
    assert corrected.rows and corrected.composing


def test_reading_for_a_library_refuses_what_was_measured_elsewhere(
    measured: Profile, vit: Library, tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    write_profile(path, measured)
    assert read_profile(path, vit) == measured
    for change, words in (({"torch": "1.0"}, "torch 1.0, not"), ({"threads": 7}, "threads 7, not 1")):
        other = measured.fingerprint.model_copy(update=change)
        write_profile(path, measured.model_copy(update={"fingerprint": other}))
        with pytest.raises(InvalidProfile, match=words):
            read_profile(path, vit)
    write_profile(path, measured)
    assert read_profile(path, vit, DeviceSetting(batch=2)) == measured
    for setting, words in (
        (DeviceSetting(batch=3), "batch 2, not 3"),
        (DeviceSetting(batch=2, length=9), "length 8, not 9"),
    ):
        with pytest.raises(InvalidProfile, match=words):
            read_profile(path, vit, setting)
    with pytest.raises(InvalidProfile, match="for one number of rows only"):
        PROFILE.model_copy(update={"rows": {}}).base_of(3)


def test_processors_of_one_name_that_multiply_otherwise_are_told_apart(
    measured: Profile, vit: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"model name": "a", "flags": "sse avx512f"}
    monkeypatch.setattr(fingerprints, "_told", lambda name: told.get(name, ""))
    path = tmp_path / "p.json"
    write_profile(path, measured.model_copy(update={"fingerprint": fingerprints.fingerprint(vit, 1, 2, "F32", 8)}))
    read_profile(path, vit, DeviceSetting(batch=2, length=8))
    told["flags"] = "sse avx512f sha"  # nothing that torch multiplies with
    read_profile(path, vit, DeviceSetting(batch=2, length=8))
    told["flags"] = "sse avx512f avx512_bf16"
    with pytest.raises(InvalidProfile, match=r"capability .*, not .* avx512_bf16"):
        read_profile(path, vit, DeviceSetting(batch=2, length=8))
    del told["flags"]
    told["Features"] = "asimd bf16 i8mm"  # as Arm says it
    assert fingerprints.fingerprint(vit, 1, 2, "F32", 8).capability.endswith(" bf16 i8mm")


def test_lengths_that_the_network_does_not_take_are_refused(vit: Library, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="no inputs of length 3"):
        Bench(vit, DeviceSetting(length=3))
    with pytest.raises(InvalidSettings, match="no inputs of length 99"):
        Bench(make_library("bert", tmp_path), DeviceSetting(length=99))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema"), ({"base": -1}, "base"), ({"base": None}, "base"), ({"kappa": 0}, "kappa"),
        ({"costs": {}}, "costs"), ({"costs": {MLP: [0.1]}}, "costs"), ({"costs": {MLP: []}}, "costs"),
        ({"costs": {MLP: [0.1, 0, 0, 0, -1]}}, "costs"), ({"unit": ""}, "unit"), ({"surprise": 1}, "surprise"),
        ({"fingerprint": {}}, "fingerprint"), ({"bend": -1e9}, "bend"), ({"delta": 1.5}, "delta"),
        ({"rows": {"0": 1.0}}, "rows"), ({"quality": {"coverage": 1}}, "quality"),
    ],
)  # fmt: skip
def test_damaged_profiles_are_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    write_profile(path, PROFILE)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidProfile, match=message):
        read_profile(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema": 1}', b'{"base": NaN}'])
def test_what_is_no_profile_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with pytest.raises(NotFound):
        read_profile(path)
    path.write_bytes(content)
    with pytest.raises((InvalidProfile, ValueError), match=r"p\.json"):
        read_profile(path)


def test_counting_bytes_is_exact(bench: Bench) -> None:
    profile = counted_profile(bench)
    stack = {MLP: 1.0, "encoder.layer.1.attention": 0.5, MLP + REST: 1.0}
    weights = profile.predict(stack)[0] - profile.base
    assert profile.unit == "bytes" and weights == pytest.approx(bench.deltas(stack, 0).n_bytes, rel=0.01)


def test_a_table_of_ones_own(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"unit": "mJ", "base": 50, "modules": {MLP: [1, 2, 3, 5, 9], MLP + REST: [4]}}))
    profile = table_profile(path, bench)
    assert profile.unit == "mJ" and profile.method == "table"
    assert profile.predict([{}, {MLP: 1.0}, {MLP: 0.5, MLP + REST: 1.0}]) == pytest.approx([50, 59, 59])
    for modules, message in (
        ({"x": [1]}, "no module 'x'"),
        ({MLP: [1, 2]}, "needs 5"),
        ({MLP: [5, 4, 3, 2, 1]}, "never fall"),
    ):
        path.write_text(json.dumps({"unit": "mJ", "base": 50, "modules": modules}))
        with pytest.raises(InvalidProfile, match=message):
            table_profile(path, bench)


def test_what_a_residual_makes_active(vit: Library, bench: Bench) -> None:
    specs = bench.runtime.specs
    names = {end: next(name for name in specs if name.endswith(f"layer.0.{end}")) for end in (
        "intermediate.dense.weight", "attention.output.dense.bias", "layernorm_before.weight")}  # fmt: skip
    up = np.zeros(specs[names["intermediate.dense.weight"]].shape, np.float32)
    up[0, 3] = up[20, 1] = 1.0
    bias = Elements(np.array([2]), np.array([1.0], np.float32))
    residual = Residual({names["attention.output.dense.bias"]: bias}, {names["intermediate.dense.weight"]: up})
    expected = {MLP: 2 / 3, "encoder.layer.0.attention" + REST: 1.0}
    assert active_fractions(vit, residual) == pytest.approx(expected)
    assert active_fractions(vit, None) == {}
    norm = {names["layernorm_before.weight"]: np.ones(specs[names["layernorm_before.weight"]].shape, np.float32)}
    assert list(active_fractions(vit, Residual(dense=norm)).values()) == [1.0]


def test_the_choice_of_a_runtime_follows_the_load_and_says_why() -> None:
    many = choose_runtime(PROFILE, [TaskLoad(1, {MLP: 0.125})] * 8)
    assert many.runtime == "shared" and many.merged == pytest.approx(8 * 3.0)
    assert many.shared == pytest.approx(10 + 8 * 2.0 * (0.5 + 0.5 / 8))
    few = choose_runtime(PROFILE, [TaskLoad(8, {MLP: 1.0})])
    assert few.runtime == "merged" and few.merged == 10.0 and "deltas 9" in few.reason
    cold = choose_runtime(PROFILE, [TaskLoad(8, {MLP: 0.125}, is_merged=False, n_sources=2)])
    composed = COMPOSING.cost({MLP: 2, "norm": 2}, [MLP])
    assert cold.merged == pytest.approx(10 + composed) and "composing 1 network " in cold.reason
    packed = choose_runtime(PROFILE, [TaskLoad(8, {MLP: 0.125}, is_packed=False)] * 2)
    assert packed.shared == pytest.approx(18 + 2 * 2.0 + 2 * 5.0) and "packing 2 tasks 10" in packed.reason
    ranks = PROFILE.model_copy(update={"fingerprint": HERE.model_copy(update={"rank": 4})})
    opened = choose_runtime(ranks, [TaskLoad(8, {MLP: 0.125}, is_packed=False)])
    assert opened.shared == pytest.approx(10 + 2.0 + COMPOSING.packing_cost([MLP, "norm"]))
    with pytest.raises(InvalidSettings, match="at least one task"):
        choose_runtime(PROFILE, [])
    with pytest.raises(InvalidProfile, match="what composing costs"):
        choose_runtime(PROFILE.model_copy(update={"composing": None}), [TaskLoad(1, {}, is_merged=False)])


def test_settings_that_make_no_sense_are_refused(vit: Library) -> None:
    with pytest.raises(InvalidSettings, match=r"a delta of 0\.02 or more"):
        MeasureSettings(n_calibrated=50, delta=0.01)
    for wrong in ({"batch": 0}, {"threads": 0}, {"dtype": "F8"}, {"length": 10**9}, {"rank": 0}):
        with pytest.raises(InvalidSettings):
            DeviceSetting(**wrong)
