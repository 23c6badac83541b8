# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of Llama becomes the entries prefill and decode, which compute its logits."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.api import EntriesProject
from relax_aot.verify.host import HostEntries
from relax_aot.verify.reference import NumpyReference
from tests.cli.in_process import relax_aot
from tests.cuda.toolkits import needs_compilers
from tests.frontends.llm.checkpoints import KINDS, Array, Llama, Mixture, Style, safetensors
from tests.frontends.llm.meaning import logits
from tests.frontends.llm.models import COMPRESSED, MODELS

CONTEXT, CHUNK = 48, 24
ALL = MODELS | COMPRESSED


def entries(model: Llama, rows: str = "last") -> rx.Entries:
    with TemporaryDirectory() as folder:
        path = model.write(Path(folder) / "tiny")
        return rx.load_llm(path, context=CONTEXT, chunk=CHUNK, logits=rows)


@cache
def compiled(name: str, board: str = "host", rows: str = "last") -> EntriesProject:
    return rx.compile(entries(ALL[name], rows), board=board, name="tiny")


@cache
def hosted(name: str) -> HostEntries:
    return compiled(name).host()


def text(count: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, Llama().words, count).astype(np.int32)


def compare(found: Array, wanted: Array) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ALL)
def test_the_program_computes_the_logits(name: str) -> None:
    """Before it is compiled, by the meaning of its ops."""
    module = dict(entries(ALL[name], "all").modules)["prefill"]
    tokens = text(20)
    reference, given = NumpyReference(module), {"tokens": tokens}
    sizes = {"m": 0, "n": 20}
    shapes = {p.name: tuple(d.evaluate(sizes) for d in p.type.shape) for p in module.main.params}
    found = reference(given, shapes, sizes)["logits"]
    compare(found, logits(ALL[name], [int(t) for t in tokens]))


def follow(host: HostEntries, model: Llama, tokens: Array, prompts: tuple[int, ...]) -> None:
    """After prompts in one call, and after every later token alone."""
    wanted = logits(model, [int(t) for t in tokens])
    for prompt in prompts:
        host.reset()
        compare(host.prefill(tokens=tokens[:prompt])["logits"], wanted[prompt - 1])
    for place in range(prompts[-1], len(tokens)):
        compare(host.decode(token=tokens[place])["logits"], wanted[place])
    assert host.length("m") == len(tokens)


@pytest.mark.slow
def test_the_c_computes_the_logits() -> None:
    follow(hosted("tied"), MODELS["tied"], text(40), (1, 7, 24))


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_the_c_of_all_models_computes_the_logits(name: str) -> None:
    follow(hosted(name), ALL[name], text(CONTEXT, 2), (1, 7, 24))


def last_logits(host: HostEntries, tokens: Array, calls: tuple[int, ...]) -> bytes:
    """The bits after so many tokens in each call, and each token that is left alone."""
    host.reset()
    place, found = 0, np.empty(0)
    for rows in calls:
        found = host.prefill(tokens=tokens[place : place + rows])["logits"]
        place += rows
    for token in tokens[place:]:
        found = host.decode(token=token)["logits"]
    return found.tobytes()


@pytest.mark.parametrize(
    "name",
    ["tied", *(pytest.param(n, marks=pytest.mark.long) for n in ("bf16", "mixtral", *COMPRESSED))],
)
def test_bits_do_not_depend_on_the_calls(name: str) -> None:
    tokens = text(24)
    whole = last_logits(hosted(name), tokens, (24,))
    for calls in ((), (7,), (1, 1), (5, 19), (16, 7)):
        assert last_logits(hosted(name), tokens, calls) == whole, calls


@pytest.mark.parametrize("name", ["tied", "phi", "mixtral"])
def test_the_last_layer_computes_what_is_read(name: str) -> None:
    """Behind its keys and values, these are the logits of one token."""
    modules = dict(entries(ALL[name]).modules) | {"all": entries(ALL[name], "all")["prefill"]}
    last = f"model.layers.{ALL[name].layers - 1}."
    rows: dict[str, set[str]] = {}
    for entry in ("prefill", "all"):
        layer = [c for c in modules[entry].main.body if c.origin.startswith(last)]
        products = [c for c in layer if c.op == "matmul"]
        assert len(products) > 6
        several = [c for c in products if "n" in c.out.type.shape[0].symbols]
        rows[entry] = {c.origin.rpartition(".")[2] for c in several}
    assert rows["prefill"] == {"k_proj", "v_proj"} < rows["all"]


def test_the_cached_values_of_a_head_are_contiguous() -> None:
    model = ALL["tied"]
    for module in dict(entries(model).modules).values():
        shapes = {param.name: param.type.shape for param in module.main.params}
        assert [*map(str, shapes["v0"])] == [str(model.keys), "m", str(model.size)]


@pytest.mark.parametrize(("name", "masked"), [("tied", {"n"}), ("late windows", {"n", "1"})])
def test_a_query_that_sees_all_keys_has_no_mask(name: str, masked: set[str]) -> None:
    """The last token, unless its window has dropped some; by the number of queries."""
    found: set[str] = set()
    for module in dict(entries(ALL[name]).modules).values():
        masks = [c for c in module.main.body if c.op == "attention_mask"]
        found |= {str(c.out.type.shape[-2]) for c in masks}
    assert found == masked


@pytest.mark.long
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_half_precision_has_the_bits_of_its_values_in_f32(name: str, tmp_path: Path) -> None:
    path = MODELS[name].write(tmp_path / "tiny")
    values = {n: array.astype(np.float32) for n, array in MODELS[name].tensors.items()}
    (path / "model.safetensors").write_bytes(safetensors(values))
    wide = rx.compile(rx.load_llm(path, context=CONTEXT, chunk=CHUNK), name="tiny").host()
    for calls in ((24,), (2, 5), (1,)):
        assert last_logits(hosted(name), text(26), calls) == last_logits(wide, text(26), calls)


@pytest.mark.long
@pytest.mark.parametrize("name", ["tied", "one head of keys", "no shared keys"])
def test_bits_with_scores_in_blocks(name: str, tmp_path: Path) -> None:
    """Rows of more than 2048 scores are computed in blocks of keys."""
    model = replace(MODELS[name], config={"max_position_embeddings": 4096})
    source = rx.load_llm(model.write(tmp_path / "tiny"), context=4096, chunk=64)
    host, tokens = rx.compile(source, name="tiny").host(), text(600)
    whole = last_logits(host, tokens, (64,) * 9 + (24,))
    for calls in ((40,) * 15, (64,) * 8 + (37,)):
        assert last_logits(host, tokens, calls) == whole, calls


OPTIONS: dict[str, tuple[dict[str, Any], float]] = {
    "threads": ({"threads": 2}, 1e-5),
    "ordered": ({"numerics": "ordered"}, 1e-5),
    "blob": ({"weights": "blob"}, 1e-5),
    "size": ({"optimize": "size"}, 1e-5),
    "stepwise": ({"stepwise": True}, 1e-5),
    "int8w": ({"quantize": "int8w"}, 0.02),
    "int4d": ({"quantize": "int4d"}, 0.2),
    "q8_0": ({"quantize": "q8_0"}, 0.03),
    "q4_0": ({"quantize": "q4_0"}, 0.3),
    "q4_k": ({"quantize": "q4_k"}, 0.3),
    "device": ({"board": "cuda-host"}, 1e-5),
}
"""Options of `compile`, and the error that they allow relative to the largest logit."""


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [*list(OPTIONS)[:-1], pytest.param("device", marks=needs_compilers)]
)
def test_options_of_compile(name: str) -> None:
    options, most = OPTIONS[name]
    host, tokens = rx.compile(entries(MODELS["tied"]), name="tiny", **options).host(), text(30)
    whole, wanted = last_logits(host, tokens, (20,)), logits(MODELS["tied"], tokens.tolist())[-1]
    error = np.abs(np.frombuffer(whole, np.float32) - wanted).max() / np.abs(wanted).max()
    assert error < most
    if name != "device":
        assert last_logits(host, tokens, (7,)) == whole


@pytest.mark.long
def test_logits_of_all_tokens_are_those_of_each() -> None:
    host, tokens = compiled("tied", rows="all").host(), text(24)
    found = host.prefill(tokens=tokens)["logits"]
    assert found.shape == (24, Llama().words)
    for place in (0, 6, 23):
        whole = last_logits(hosted("tied"), tokens[: place + 1], (place + 1,))
        assert found[place].tobytes() == whole


def test_errors_leave_the_state_as_it_was() -> None:
    host, tokens = hosted("tied"), text(CONTEXT)
    host.reset()
    for start in (0, CHUNK):
        host.prefill(tokens=tokens[start : start + CHUNK])
    with pytest.raises(rx.StatusError, match="tiny_decode_run ended with RAOT_ERR_CAPACITY"):
        host.decode(token=tokens[0])
    host.truncate(m=CONTEXT - 2)
    for token in (-1, Llama().words, 2**31 - 1, -(2**31)):
        with pytest.raises(rx.StatusError, match="RAOT_ERR_INDEX"):
            host.decode(token=np.array(token, np.int32))
        with pytest.raises(rx.StatusError, match="RAOT_ERR_INDEX"):
            host.prefill(tokens=np.array([0, token], np.int32))
    with pytest.raises(rx.StatusError, match="RAOT_ERR_CAPACITY"):
        host.prefill(tokens=tokens[:3])
    with pytest.raises(rx.RelaxAotError):
        host.prefill(tokens=tokens[:0])
    assert host.length("m") == CONTEXT - 2
    host.decode(token=tokens[-2])
    found = host.decode(token=tokens[-1])["logits"]
    compare(found, logits(MODELS["tied"], [int(t) for t in tokens])[-1])


@pytest.mark.parametrize("name", ["tied", pytest.param("f16", marks=pytest.mark.long)])
def test_weights_are_stored_once_in_their_type(name: str) -> None:
    """Both entries and the tied table share them. Norms and frequencies are float32."""
    model = MODELS[name]
    sizes = {rank: sum(a.size for a in model.tensors.values() if a.ndim == rank) for rank in (1, 2)}
    least = sizes[2] * KINDS[model.kind].itemsize + 4 * (sizes[1] + model.size // 2)
    padding = 64 * len(model.tensors) + 32 * 4 * model.width  # of the last panel of the table
    assert least <= compiled(name).memory.const_bytes <= least + padding


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "quantize", "most"), [("F32", None, 4.0), ("F16", None, 2.0), ("F32", "q8_0", 1.4)]
)
def test_weights_of_low_rank_are_stored_as_factors(
    kind: str, quantize: str | None, most: float
) -> None:
    """In so many bytes for each number. Whole weights have three times as many numbers."""
    style = Style(rank=32)
    model = Llama(width=192, hidden=256, size=48, kind=kind, layers=1, style=style)
    decode = dict(entries(model).modules)["decode"]
    found = rx.compile(decode, name="tiny", quantize=quantize).memory.const_bytes
    assert found < 1.05 * most * sum(array.size for array in model.tensors.values())


@pytest.mark.slow
def test_experts_that_are_not_chosen_are_not_read(tmp_path: Path) -> None:
    """Weights of one that are no numbers change only the rows that choose it. The arena of a
    decode step holds no weights."""
    mixture = Mixture(4, 1, 96, at="block_sparse_moe", names=("w1", "w3", "w2"))
    model = replace(MODELS["mixtral"], width=64, layers=1, style=Style(mixture=mixture))
    one = replace(model, config={"num_local_experts": 4, "num_experts_per_tok": 1}, hidden=96)
    wanted = rx.compile(entries(one, "all"), name="tiny").host().prefill(tokens=text(24))["logits"]
    tensors = one.tensors
    for name in tensors:
        if ".experts.3." in name:
            tensors[name][:] = np.nan
    path = one.write(tmp_path / "tiny")
    (path / "model.safetensors").write_bytes(safetensors(tensors))
    program = rx.compile(rx.load_llm(path, context=CONTEXT, logits="all"), name="tiny")
    found = program.host().prefill(tokens=text(24))["logits"]
    chosen = np.isnan(found).any(axis=1)
    assert 2 <= chosen.sum() <= 12
    assert found[~chosen].tobytes() == wanted[~chosen].tobytes()
    assert program.entries["decode"].built.plan.arena_bytes < 4 * 64 * 96 / 2


@pytest.mark.slow
def test_layers_are_one_function() -> None:
    source = rx.compile(dict(entries(Llama(layers=4)).modules)["decode"], name="tiny").files
    assert source["tiny.c"].decode().count("    tiny_layer(m, memory->arena") == 4


@pytest.mark.slow
def test_the_command_writes_a_project(tmp_path: Path) -> None:
    folder = MODELS["tied"].write(tmp_path / "Tiny-1")
    out = tmp_path / "out"
    done = relax_aot("llm", folder, "--context", "32", "-o", out, folder=tmp_path)
    assert done.returncode == 0 and "decode: arena" in done.stdout, done.stderr
    header = (out / "tiny_1.h").read_text()
    assert "const int32_t *tokens;" in header and "TINY_1_M_MAX" in header


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize(
    "board", ["mps2-an500", pytest.param("aarch64-linux", marks=pytest.mark.long)]
)
def test_on_boards(board: str) -> None:
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    model, tokens = MODELS["f16"], text(12)
    calls = [("prefill", {"tokens": tokens[:9]})]
    calls += [("decode", {"token": token}) for token in tokens[9:]]
    wanted = logits(model, [int(t) for t in tokens])
    for place, run in enumerate(compiled("f16", board).emulate(calls), 8):
        assert run.status == 0
        compare(run.outputs["logits"], wanted[place])


def test_weights_are_quantized_from_the_command_line(tmp_path: Path) -> None:
    """Rows of 44 numbers are no blocks of 32."""
    folder, out = Llama(layers=1).write(tmp_path / "tiny"), tmp_path / "out"
    words = ("llm", str(folder), "--context", "8", "--quantize", "q8_0", "-o", str(out))
    said = relax_aot(*words, folder=tmp_path).stdout
    floats = [line for line in said.splitlines() if "stays float" in line]
    assert "decode: weights quantized: q8_0" in said and len(floats) == 2
    assert all("down_proj" in line and "[44, 32] are not quantized" in line for line in floats)
