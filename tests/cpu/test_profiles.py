"""Hardware profiles: consistent figures, clear refusals, no guessing."""

from pathlib import Path

import pytest
import torch

from mtmc.errors import BadInput
from mtmc.hardware_profiles import detect, load, names

UNITS = ("fp16", "bf16", "tf32", "fp8")
WANTED = {"v100", "a100", "a100-40", "h100", "h100-pcie", "h200", "l40s", "rtx4090", "mi300x"}


def test_all_profiles_load_under_their_file_name() -> None:
    assert set(names()) >= WANTED
    for name in names():
        assert load(name).name == name
        assert load(name).source


@pytest.mark.parametrize("name", names())
def test_sparse_is_twice_dense(name: str) -> None:
    profile = load(name)
    for unit in UNITS:
        dense = getattr(profile, f"{unit}_tensor_dense_tflops")
        sparse = getattr(profile, f"{unit}_tensor_sparse_tflops")
        if dense and sparse:
            assert sparse == pytest.approx(2 * dense, rel=1e-3)


@pytest.mark.parametrize("name", [n for n in names() if n not in ("mi300x",)])
def test_fp32_rate_is_two_flops_a_lane_and_clock(name: str) -> None:
    """64 lanes an SM before the consumer Ampere layout, 128 since."""
    profile = load(name)
    lanes = 64 if profile.architecture in ("sm_70", "sm_80") else 128
    assert profile.fp32_tflops == pytest.approx(2 * lanes * profile.sm_count * profile.clock_hz / 1e12, rel=0.01)


def test_features_follow_the_architecture() -> None:
    assert load("h100").tma and load("h200").wgmma
    assert load("a100").async_copy and not load("a100").tma
    assert not load("v100").tensor_cores_in_triton and load("v100").tensor_tflops("fp16") is None
    assert load("mi300x").warp_size == 64 and load("mi300x").capability == "gfx942"
    assert load("h100").capability == 90


def test_other_gpus_say_whose_efficiency_they_use() -> None:
    assert "same factors as H200" in load("a100").efficiency.source
    assert load("a100").efficiency.dram_fraction == load("h200").efficiency.dram_fraction


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(BadInput, match="unknown GPU 'h1000'; known: .*h100"):
        load("h1000")


def test_own_file_is_read_and_checked(tmp_path: Path) -> None:
    text = (Path(load.__code__.co_filename).parent / "a100.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("sm_count = 108", "sm_count = 54"))
    assert load(str(path)).sm_count == 54
    path.write_text(text.replace("sm_count = 108", "sms = 108"))
    with pytest.raises(BadInput, match="missing sm_count and unknown sms"):
        load(str(path))
    path.write_text(text.replace("sm_count = 108", 'sm_count = "108"'))
    with pytest.raises(BadInput, match="sm_count must be int"):
        load(str(path))
    path.write_text("sm_count = ")
    with pytest.raises(BadInput, match="not TOML"):
        load(str(path))


def test_detect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert detect() is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H200")
    found = detect()
    assert found is not None and found.name == "h200"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Voodoo 2")
    with pytest.raises(BadInput, match="Voodoo 2"):
        detect()
