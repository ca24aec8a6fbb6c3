"""Settings of two config.json that mean the same network, or another one."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_networks import CONFIG, make_tensors, write_checkpoint

from smatter.errors import IncompatibleSource
from smatter.library.configs import differences
from smatter.library.edit import add_source, init_library
from smatter.library.library import Library

MakeLibrary = Callable[..., Library]
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
}  # fmt: skip
BERT: dict[str, Any] = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4}
LINEAR = {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 1e6}


def rope(base: float, **more: object) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": base, "rope_type": "default", **more}}


def found(base: dict[str, Any], candidate: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(each.severity, each.key) for each in differences(base, candidate)]


@pytest.mark.parametrize(
    ("base", "candidate"),
    [
        (LLAMA | {"rope_theta": 1e6}, LLAMA | rope(1e6)),
        (LLAMA, LLAMA | rope(1e4)),
        (LLAMA | LINEAR, LLAMA | {"rope_parameters": {"rope_theta": 1e6, "rope_type": "linear", "factor": 2.0}}),
        (LLAMA, LLAMA | {"num_key_value_heads": 4, "head_dim": 16}),
        (LLAMA, LLAMA | {"unsloth_version": "2025.3", "unsloth_fixed": True}),
        (LLAMA, LLAMA | {"_name_or_path": "someone/x", "torch_dtype": "bfloat16", "transformers_version": "4.1"}),
        (BERT, BERT | {"hidden_dropout_prob": 0.0, "use_cache": False, "is_decoder": False}),
        (BERT, BERT | {"layer_norm_eps": 1e-12, "hidden_act": "gelu"}),
    ],
)
def test_one_network_said_in_two_ways(base: dict[str, Any], candidate: dict[str, Any]) -> None:
    assert found(base, candidate) == found(candidate, base) == []


@pytest.mark.parametrize(
    ("base", "candidate", "key"),
    [
        (LLAMA | {"rope_theta": 1e4}, LLAMA | rope(1e6), "rope_parameters"),
        (LLAMA | {"rope_theta": 1e4}, LLAMA | {"rope_theta": 1e6}, "rope_parameters"),
        (LLAMA, LLAMA | {"rope_theta": 1e6}, "rope_parameters"),
        (LLAMA | {"rope_theta": 1e6}, LLAMA | LINEAR, "rope_parameters"),
        (LLAMA, LLAMA | {"rms_norm_eps": 1e-6}, "rms_norm_eps"),
        (BERT, BERT | {"num_attention_heads": 2}, "num_attention_heads"),
        (BERT, BERT | {"hidden_act": "relu"}, "hidden_act"),
        (BERT, BERT | {"is_decoder": True}, "is_decoder"),
        (BERT, BERT | {"max_position_embeddings": 1024}, "max_position_embeddings"),
        ({"model_type": "new", "heads": 2}, {"model_type": "new", "heads": 4}, "heads"),
    ],
)
def test_another_network_has_a_key_to_accept_it_by(base: dict[str, Any], candidate: dict[str, Any], key: str) -> None:
    assert found(base, candidate) == [("error", key)]


def test_longer_rotary_positions_are_worth_a_warning_unless_they_are_scaled() -> None:
    assert found(LLAMA, LLAMA | {"max_position_embeddings": 4096}) == [("warning", None)]
    scaled = {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    assert ("error", "max_position_embeddings") in found(
        LLAMA | scaled, LLAMA | scaled | {"max_position_embeddings": 4096}
    )


def test_another_last_token_is_told() -> None:
    (told,) = differences(LLAMA | {"eos_token_id": 2}, LLAMA | {"eos_token_id": 7})
    assert told.severity == "warning" and "exports take the base's" in told.message


def test_settings_of_networks_that_nobody_knows_are_for_the_user_to_judge() -> None:
    assert found({"model_type": "new"}, {"model_type": "new", "extra": 1}) == [("warning", None)]


def test_an_absurd_setting_is_no_reason_to_fail() -> None:
    assert found(BERT, BERT | {"num_hidden_layers": 10**12, "hidden_size": ["x"]})


def test_a_setting_is_accepted_by_its_key_and_recorded(make_library: MakeLibrary, tmp_path: Path) -> None:
    library = make_library()
    source = write_checkpoint(tmp_path / "s", make_tensors(5, near=make_tensors(0)), CONFIG | {"layer_norm_eps": 1e-3})
    with pytest.raises(IncompatibleSource, match="--accept layer_norm_eps if you know better"):
        add_source(library.folder, source)
    added, findings = add_source(library.folder, source, accept=["layer_norm_eps"])
    assert [finding.severity for finding in findings] == ["accepted"]
    assert added.manifest.source("s").accepted == ("layer_norm_eps",)


def test_configs_that_agree_need_neither_torch_nor_transformers(make_library: MakeLibrary, tmp_path: Path) -> None:
    library, source = make_library(), write_checkpoint(tmp_path / "s", make_tensors(5, near=make_tensors(0)))
    program = (
        "import sys; from smatter.cli.main import main; "
        f"assert main(['library', 'add', {str(library.folder)!r}, {str(source)!r}]) == 0; "
        f"assert main(['library', 'check', {str(library.folder)!r}]) == 0; "
        "assert not {'torch', 'transformers'} & {*sys.modules}"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_checkpoints_without_settings_mix(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "base", make_tensors(0), {})
    init_library(tmp_path / "library", folder)
    source = write_checkpoint(tmp_path / "source", make_tensors(1, near=make_tensors(0)), {})
    assert add_source(tmp_path / "library", source)[1] == []
