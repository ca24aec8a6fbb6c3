"""Banks of experts: what they open, where they are found, what is refused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import smatter
from smatter.cli.main import main
from smatter.compose.experts import ExpertMix
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidRecipe, InvalidRouter, NotFound, UnknownSource, UnsafeFile
from smatter.library.banks import BANK, Bank, read_bank, router_bank
from smatter.library.edit import remove_experts
from smatter.library.library import Library, open_library
from smatter.library.mergekit import write_merge
from smatter.live.mixture import LiveMixture
from smatter.settings.training import RouterSettings, UnitKind
from smatter.units.layouts import make_layout

KINDS: tuple[UnitKind, ...] = ("groups", "elements", "components")
RANK = 2


def make_bank(library: Library, units: UnitKind = "groups", seed: int = 0, n_experts: int = 3) -> Bank:
    """Random experts of a library's network."""
    live = LiveMixture(library)
    unit_of = make_layout(live.numbering, units, RANK).unit_of.numpy()
    generator = np.random.default_rng(seed)
    masks = generator.random((n_experts, int(unit_of.max()) + 1)) < 0.3
    values = generator.normal(0, 0.05, int(masks.any(axis=0)[unit_of].sum())).astype(np.float16)
    return Bank(
        values,
        masks,
        units,
        RANK,
        base=library.manifest.digests[library.manifest.base],
        partition=library.partition.digest,
        tensors=tuple(live.numbering.tensors),
    )


@pytest.fixture
def library(vit_library: Library, tmp_path: Path) -> Library:
    """A copy that a test may write to; its sources stay where they are."""
    shutil.copytree(vit_library.folder, tmp_path / "library")
    return open_library(tmp_path / "library")


@pytest.fixture
def router(library: Library, tmp_path: Path) -> Path:
    """A router's folder, as far as its experts go."""
    (tmp_path / "router").mkdir()
    make_bank(library).write(tmp_path / "router" / BANK)
    return tmp_path / "router"


@pytest.mark.parametrize("units", KINDS)
def test_what_experts_open_is_what_the_network_learnt_with(vit_library: Library, units: UnitKind) -> None:
    """Against the layout that they are trained in, in float64, and unit by unit."""
    library = open_library(vit_library.folder)
    bank = make_bank(library, units)
    library.lend(bank)
    placed, live = library.bank(bank.digest), LiveMixture(library)
    layout = live.layout(RouterSettings(units=units, rank=RANK))
    values = torch.from_numpy(placed.values).double()
    alpha = (0.5, 0.0, 0.3)
    gates = bank.gates(ExpertMix(bank.digest, alpha))
    expected = torch.tensor(alpha, dtype=torch.float64) @ torch.from_numpy(bank.masks).double()
    np.testing.assert_allclose(gates, expected, rtol=1e-6)
    exact = layout.expand(values, torch.from_numpy(gates).double())
    np.testing.assert_allclose(placed.vector(gates), exact, rtol=2e-6, atol=1e-9)
    if units != "components":  # products of matrices are torch's own affair
        assert np.array_equal(placed.vector(gates), layout.expand(values.float(), torch.from_numpy(gates)).numpy())
    one = np.zeros_like(gates)
    one[bank.masks.any(axis=0).nonzero()[0][0]] = 1
    assert np.array_equal(placed.vector(one) != 0, (layout.expand(values, torch.from_numpy(one).double()) != 0).numpy())


def test_a_recipe_of_experts_composes_like_its_expanded_self(vit_library: Library) -> None:
    library = open_library(vit_library.folder)
    bank = make_bank(library)
    library.lend(bank)
    name = next(iter(bank.tensors))
    spec = library.specs[name]
    residual = Residual({name: Elements(np.array([0, 5]), np.array([1.0, -1.0], np.float32))})
    head = next(tensor for tensor in library.specs if tensor not in bank.tensors)
    residual = Residual(residual.elements, {head: np.ones(library.specs[head].shape, np.float32)})
    mixture = Mixture.of({"base": 0.4, "source-0": 0.6})
    recipe = library.recipe(mixture, residual, ExpertMix(bank.digest, (0.2, 0.8, 0.0)))
    expanded = library.self_contained(recipe)
    assert expanded.experts is None and expanded.residual is not None
    one, other = library.compose(recipe), library.compose(expanded)
    opened = library.compose(library.recipe(mixture, None, recipe.experts))
    assert all(np.array_equal(one.array(each), other.array(each)) for each in library.specs)
    np.testing.assert_allclose(one.array(name)[:6] - opened.array(name)[:6], [1, 0, 0, 0, 0, -1], atol=1e-6)
    np.testing.assert_allclose(one.array(head) - opened.array(head), 1, atol=1e-6)
    assert spec.n_elements > 6


def test_the_library_keeps_a_copy_and_says_so(library: Library, router: Path, tmp_path: Path, capsys) -> None:
    bank = router_bank(router)
    library.lend(bank)
    recipe = library.recipe(Mixture.of({"base": 1.0}), experts=ExpertMix(bank.digest, (0.5, 0.5, 0.0)))
    smatter.write_recipe(tmp_path / "r.safetensors", recipe)
    words = ["compose", str(library.folder), "--recipe", str(tmp_path / "r.safetensors"), "-o"]
    assert main([*words, str(tmp_path / "none")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"smatter library experts {library.folder} ROUTER" in told
    assert not (tmp_path / "none").exists()
    assert main([*words, str(tmp_path / "lent"), "--router", str(router)]) == 0
    assert main(["library", "experts", str(library.folder), str(router), "--json"]) == 0
    capsys.readouterr()
    shutil.rmtree(router)
    assert main([*words, str(tmp_path / "kept")]) == 0
    weights = [(tmp_path / each / "model.safetensors").read_bytes() for each in ("lent", "kept")]
    assert weights[0] == weights[1]
    for command in ("list", "check"):
        capsys.readouterr()
        main(["library", command, str(library.folder)])
        assert f"experts {bank.digest[:12]} of router router" in capsys.readouterr().out
    smatter.remove_source(library.folder, "source-1")
    after = open_library(library.folder)
    assert after.bank(bank.digest).bank.digest == bank.digest  # removing a source keeps the experts
    path = library.folder / "experts" / f"{bank.digest}.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    capsys.readouterr()
    assert main(["library", "check", str(library.folder), "--json"]) == 2
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["kind"] == "experts" and "smatter library experts" in finding["message"]


def test_copying_twice_changes_nothing_and_mends_damage(library: Library, router: Path) -> None:
    _, digest = smatter.add_experts(library.folder, router)
    manifest = (library.folder / "library.json").read_bytes()
    path = library.folder / "experts" / f"{digest}.safetensors"
    path.write_bytes(b"")
    smatter.add_experts(library.folder, router)
    assert (library.folder / "library.json").read_bytes() == manifest
    assert path.read_bytes() == (router / BANK).read_bytes()


def test_experts_are_removed_by_name_and_nothing_else_with_them(library: Library, router: Path, capsys) -> None:
    _, digest = smatter.add_experts(library.folder, router)
    folder = library.folder / "experts"
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UnknownSource, match=digest[:12]):
        remove_experts(library.folder, digest[:7])
    assert main(["library", "remove", str(library.folder), digest[:12]]) == 0
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert not open_library(library.folder).manifest.experts
    smatter.add_experts(library.folder, router)
    (folder / f"{digest}.safetensors").write_text("somebody else's")
    remove_experts(library.folder, digest)
    assert (folder / f"{digest}.safetensors").read_text() == "somebody else's"  # what is not ours stays


def test_experts_of_modules_in_another_order_are_refused(library: Library, router: Path) -> None:
    """The same modules, so the same partition, but other numbers of their units."""
    smatter.add_experts(library.folder, router)
    path = library.folder / "library.json"
    table = json.loads(path.read_text())
    table["modules"] = dict(reversed(table["modules"].items()))
    path.write_text(json.dumps(table))
    other, digest = open_library(library.folder), router_bank(router).digest
    assert other.partition.digest == library.partition.digest
    with pytest.raises(InvalidRecipe, match="another order"):
        other.recipe(Mixture.of({"base": 1.0}), experts=ExpertMix(digest, (0.5, 0.5, 0.0)))


def test_a_bank_is_the_bytes_that_its_digest_is_of(library: Library, router: Path, monkeypatch) -> None:
    """A file that changes while it is copied costs nobody a sound copy."""
    _, digest = smatter.add_experts(library.folder, router)
    kept = library.folder / "experts" / f"{digest}.safetensors"
    before = kept.read_bytes()
    other = make_bank(library, seed=5)
    read = Path.read_bytes

    def changed(path: Path) -> bytes:
        data = read(path)
        if path == router / BANK:
            path.write_bytes(b"".join(other.encoded))
        return data

    monkeypatch.setattr(Path, "read_bytes", changed)
    smatter.add_experts(library.folder, router)
    assert read(kept) == before and open_library(library.folder).bank(digest)


def test_a_folder_of_experts_that_leads_elsewhere_is_refused(library: Library, router: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (library.folder / "experts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFile, match="is a link"):
        smatter.add_experts(library.folder, router)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_names_of_routers_are_cleaned(library: Library, router: Path, capsys) -> None:
    strange = router.with_name("evil\x1b[31m\nnot fit to mix\udcff")
    router.rename(strange)
    assert main(["library", "experts", str(library.folder), str(strange)]) == 0
    main(["library", "list", str(library.folder)])
    assert "\x1b" not in capsys.readouterr().out.partition("holds the experts")[2].partition("\n")[2]
    assert open_library(library.folder).manifest.experts[0].router.isascii()


def test_fewer_sources_keep_what_was_lent(library: Library, router: Path) -> None:
    bank = router_bank(router)
    library.lend(bank)
    assert library.only(["base"]).bank(bank.digest).bank is bank


def test_mergekit_knows_no_experts(library: Library, router: Path) -> None:
    bank = router_bank(router)
    library.lend(bank)
    mixture = Mixture.of({"base": 0.5, "source-0": 0.5})
    with pytest.raises(InvalidRecipe, match="no experts"):
        write_merge(library, library.recipe(mixture, experts=ExpertMix(bank.digest, (0.5, 0.5, 0.0))))
    assert "linear" in write_merge(library, library.recipe(mixture, experts=ExpertMix(bank.digest, (0.0, 0.0, 0.0))))


def test_strangers_are_refused(library: Library, router: Path, tmp_path: Path) -> None:
    bank = router_bank(router)
    with pytest.raises(NotFound, match="smatter train"):
        router_bank(tmp_path)
    with pytest.raises(UnknownSource, match="--router"):
        library.recipe(Mixture.of({"base": 1.0}), experts=ExpertMix("0" * 64, (1.0,)))
    library.lend(bank)
    with pytest.raises(InvalidRecipe, match="weights of 2 experts"):
        library.recipe(Mixture.of({"base": 1.0}), experts=ExpertMix(bank.digest, (0.5, 0.5)))
    beyond = Elements(np.array([bank.masks.shape[1]]), np.ones(1, np.float32))
    with pytest.raises(InvalidRecipe, match="is open and the bank has"):
        library.recipe(Mixture.of({"base": 1.0}), experts=ExpertMix(bank.digest, (0.5, 0.5, 0.0), beyond))
    idle = library.recipe(Mixture.of({"base": 1.0}), experts=ExpertMix("0" * 64, (0.0,)))
    assert library.correction(idle) is None  # nothing is open, so the bank is not needed
    changes = {
        "base": ("1" * 64, "another base"),
        "partition": ("1" * 64, "other modules"),
        "tensors": (("ghost",), "other modules"),
        "masks": (bank.masks[:, :-1], "other units"),
        "values": (bank.values[:-1], "other units"),
    }
    for field, (value, words) in changes.items():
        other = Bank(**{**vars(bank), field: value, "digest": ""})
        other.write(router / BANK)
        with pytest.raises(InvalidRecipe, match=words):
            smatter.add_experts(library.folder, router)
    assert not (library.folder / "experts").exists()


def test_a_bank_file_is_plain_safetensors_and_checked(router: Path, tmp_path: Path) -> None:
    tensors = load_file(router / BANK)
    bank = read_bank(router / BANK)
    assert np.array_equal(tensors["values"], bank.values) and np.array_equal(tensors["masks"].astype(bool), bank.masks)
    with pytest.raises(InvalidRouter, match="not the bank"):
        read_bank(router / BANK, "0" * 64)
    data = (router / BANK).read_bytes()
    path = tmp_path / "bank.safetensors"
    for old, new, words in (
        (b'"units":"groups"', b'"units":"gropus"', "units"),
        (b"smatter_experts", b"smatter_experta", "not a bank"),
        (b'"F16"', b'"I16"', "not a bank"),
    ):
        old_json, new_json = (each.replace(b'"', b'\\"') if b"units" in each else each for each in (old, new))
        path.write_bytes(data.replace(old_json, new_json, 1))
        with pytest.raises(InvalidRouter, match=words) as caught:
            read_bank(path)
        assert "\n" not in str(caught.value)
    path.write_bytes(data[:-1] + b"\x02")
    with pytest.raises(InvalidRouter, match="zeros and ones"):
        read_bank(path)


def test_composing_experts_needs_no_torch(library: Library, router: Path, tmp_path: Path) -> None:
    _, digest = smatter.add_experts(library.folder, router)
    kept = open_library(library.folder)
    recipe = kept.recipe(Mixture.of({"base": 0.5, "source-0": 0.5}), experts=ExpertMix(digest, (1.0, 0.0, 0.0)))
    smatter.write_recipe(tmp_path / "r.safetensors", recipe)
    words = ["compose", str(library.folder), "--recipe", str(tmp_path / "r.safetensors"), "-o", str(tmp_path / "out")]
    program = (
        f"import sys; from smatter.cli.main import main; assert main({words!r}) == 0; assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode == 0, found.stderr
