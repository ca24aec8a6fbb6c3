"""Storage forms: what they keep, what they cost, and that blocks do not matter."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import make_tensors, write_checkpoint

from smatter.files.reading import as_torch
from smatter.library.checkpoint import open_checkpoint
from smatter.library.contents import content_digest
from smatter.library.edit import add_source
from smatter.library.forms.delta import BLOCK
from smatter.library.library import Library
from smatter.library.stored import FORMS, STORED, StoredSource, measure_loss, write_stored

LOSSY = {"bf16-delta": 2**-8, "low-rank": 0.99, "int8": 0.9}
"""The most of a delta of a tenth of the weights that each form may lose here."""


def stored(folder: Path, form: str, base: dict, source: dict, rank: int | None = None):
    original = open_checkpoint(write_checkpoint(folder / "source", source))
    origin = open_checkpoint(write_checkpoint(folder / "base", base))
    (folder / "stored").mkdir()
    write_stored(folder / "stored", form, original, origin, original.tensors, rank)
    return StoredSource(folder / "stored" / STORED, form, origin), original, origin


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_any_range_is_read_as_the_whole_is(tmp_path: Path, form: str, dtype: torch.dtype) -> None:
    base = make_tensors(0, dtype)
    source, original, _ = stored(tmp_path, form, base, make_tensors(1, dtype, near=base))
    generator = np.random.default_rng(0)
    for name, spec in original.tensors.items():
        whole = source.read(name, 0, spec.n_elements)
        for _ in range(5):
            start, stop = np.sort(generator.choice(spec.n_elements + 1, 2, replace=False)).tolist()
            assert source.read(name, start, stop).tobytes() == whole[start:stop].tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_exact_delta_is_exact_and_smaller(tmp_path: Path, dtype: torch.dtype) -> None:
    base = {"w": torch.randn(BLOCK + 12_345).to(dtype), "frozen": torch.randn(5, 7).to(dtype)}
    # A fine-tune moves weights a little: most leading bits stay.
    source = {"w": (base["w"].float() * (1 + 1e-4 * torch.randn(BLOCK + 12_345))).to(dtype), "frozen": base["frozen"]}
    read, original, origin = stored(tmp_path, "delta", base, source)
    assert content_digest(read, original.tensors, "x") == content_digest(original, original.tensors, "x")
    size = (tmp_path / "stored" / STORED).stat().st_size
    assert size < 0.9 * (tmp_path / "source" / "model.safetensors").stat().st_size
    assert measure_loss(read, original, origin, original.tensors).of_weights == 0


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_exact_delta_survives_any_bits(data: st.DataObject, tmp_path_factory) -> None:
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16]))
    width = 4 if dtype == torch.float32 else 2
    size = data.draw(st.integers(1, 40))
    base, source = (
        {
            "w": torch.frombuffer(
                bytearray(data.draw(st.binary(min_size=width * size, max_size=width * size))), dtype=dtype
            )
        }
        for _ in range(2)
    )
    read, original, _ = stored(tmp_path_factory.mktemp("bits"), "delta", base, source)
    assert read.read("w", 0, size).tobytes() == original.read("w", 0, size).tobytes()


@pytest.mark.parametrize("form", LOSSY)
def test_lossy_forms_state_their_true_error(tmp_path: Path, form: str) -> None:
    base = make_tensors(0)
    tensors = make_tensors(1, near=base)
    read, original, origin = stored(tmp_path, form, base, tensors, 4 if form == "low-rank" else None)
    loss = measure_loss(read, original, origin, original.tensors)
    floating = [name for name in tensors if tensors[name].is_floating_point()]
    kept = {name: as_torch(read.read(name, 0, tensors[name].numel()), original.tensors[name]) for name in floating}
    lost = sum(float((kept[name] - tensors[name]).double().square().sum()) for name in floating) ** 0.5
    weight = sum(float(tensors[name].double().square().sum()) for name in floating) ** 0.5
    delta = sum(float((tensors[name] - base[name]).double().square().sum()) for name in floating) ** 0.5
    assert loss.of_weights == pytest.approx(lost / weight, rel=1e-4)
    assert loss.of_delta == pytest.approx(lost / delta, rel=1e-4)
    assert 0 < lost / delta < LOSSY[form]


def test_low_rank_is_the_best_approximation_and_exact_at_the_true_rank(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    base = {"wide": torch.randn(48, 160, generator=generator), "tall": torch.randn(160, 48, generator=generator)}
    low = {
        name: value + 0.1 * torch.randn(value.shape[0], 3) @ torch.randn(3, value.shape[1])
        for name, value in base.items()
    }
    full = {name: value + 0.1 * torch.randn(value.shape, generator=generator) for name, value in base.items()}
    exact, original, origin = stored(tmp_path / "low", "low-rank", base, low, rank=3)
    assert measure_loss(exact, original, origin, original.tensors).of_weights < 1e-6
    cut, original, origin = stored(tmp_path / "full", "low-rank", base, full, rank=5)
    for name, value in full.items():
        kept = as_torch(cut.read(name, 0, value.numel()), original.tensors[name])
        singular = torch.linalg.svdvals((value - base[name]).double())
        best = singular[5:].square().sum().sqrt()
        assert float((kept - value).double().norm()) == pytest.approx(float(best), rel=1e-3)


def test_int8_is_within_half_a_step_of_each_row(tmp_path: Path) -> None:
    tensors = {"w": torch.randn(20, 64), "zero": torch.zeros(3, 4), "v": torch.randn(9)}
    read, original, _ = stored(
        tmp_path, "int8", {name: torch.ones_like(value) for name, value in tensors.items()}, tensors
    )
    kept = {
        name: as_torch(read.read(name, 0, value.numel()), original.tensors[name]) for name, value in tensors.items()
    }
    step = tensors["w"].abs().amax(dim=1, keepdim=True) / 127
    assert ((kept["w"] - tensors["w"]).abs() <= 0.5001 * step).all()
    assert torch.equal(kept["v"], tensors["v"]) and torch.equal(kept["zero"], tensors["zero"])


def test_reading_a_module_touches_nothing_else(make_library: Callable[..., Library], monkeypatch) -> None:
    library = make_library()
    source = write_checkpoint(library.folder.parent / "d", make_tensors(4, near=make_tensors(0)))
    library, _ = add_source(library.folder, source, form="delta")
    touched: list[tuple[str, str]] = []
    from smatter.files.reading import MappedFile

    original = MappedFile.read

    def spy(self: MappedFile, name: str, start: int, stop: int):
        touched.append((self.path.name, name))
        return original(self, name, start, stop)

    monkeypatch.setattr(MappedFile, "read", spy)
    wanted = "encoder.layer.1.output.dense.weight"
    library.read("d", wanted, 0, 100)
    assert {name.partition(":")[0] for _, name in touched} == {wanted}
