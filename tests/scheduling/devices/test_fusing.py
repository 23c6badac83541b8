# SPDX-License-Identifier: Apache-2.0
"""Fusion for devices: products whose factors are inputs of a model stay products in tiles next
to kernels of rows, and attention stays one kernel."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from relax_aot import lowering, transforms
from relax_aot.fusion import Policy, fuse
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel, Micro, walk
from relax_aot.ir.parse import parse
from relax_aot.scheduling import fusion_policy, schedule_device
from relax_aot.scheduling.targets import Target, all_targets, cuda, cuda_mma
from tests.fusion.run_module import run_module
from tests.planning.random_modules import random_inputs, random_sizes

MEMORY = Policy(rows_over_weights=True)
PRODUCTS = {
    "an operand is multiplied before": (1, """
        func @main(%x: T[n, 24], %g: T[24], %w: T[24, 40]) {
          %a: T[n, 24] = mul(%x, %g)
          %y: T[n, 40] = matmul(%a, %w)
          return %y
        }"""),
    "a normalization before": (1, """
        func @main(%x: T[n, 24], %g: T[24], %b: T[24], %w: T[24, 40]) {
          %a: T[n, 24] = layer_norm(%x, %g, %b) {axis=1, epsilon=1e-05}
          %y: T[n, 40] = matmul(%a, %w)
          return %y
        }"""),
    "a softmax behind": (1, """
        func @main(%x: T[n, 24], %w: T[24, 40]) {
          %a: T[n, 40] = matmul(%x, %w)
          %y: T[n, 40] = softmax(%a) {axis=1}
          return %y
        }"""),
    "a normalization before and one behind": (1, """
        func @main(%x: T[n, 24], %w: T[24, 40], %g: T[24], %b: T[24], %c: T[40]) {
          %a: T[n, 24] = layer_norm(%x, %g, %b) {axis=1, epsilon=1e-05}
          %p: T[n, 40] = matmul(%a, %w)
          %y: T[n, 40] = layer_norm(%p, %c, %c) {axis=1, epsilon=1e-05}
          return %y
        }"""),
    "a chain": (3, """
        func @main(%x: T[n, 24], %u: T[24, 96], %v: T[96, 24], %w: T[24, 8]) {
          %a: T[n, 96] = matmul(%x, %u)
          %b: T[n, 96] = relu(%a)
          %c: T[n, 24] = matmul(%b, %v)
          %y: T[n, 8] = matmul(%c, %w)
          return %y
        }"""),
    "batches, of matrices that are all computed": (2, """
        func @main(%x: T[2, n, 24], %w: T[2, 24, n], %z: T[2, n, 16]) {
          %a: T[2, n, n] = matmul(%x, %w)
          %b: T[2, n, n] = mul(%a, %a)
          %y: T[2, n, 16] = matmul(%b, %z)
          return %y
        }"""),
    "an image": (1, """
        func @main(%x: T[n, 9, 9, 8], %g: T[8], %w: T[9, 8, 24]) {
          %a: T[n, 9, 9, 8] = layer_norm(%x, %g, %g) {axis=3, epsilon=1e-05}
          %r: T[n, 9, 72] = reshape(%a) {shape=[n, 9, 72]}
          %v: T[72, 24] = reshape(%w) {shape=[72, 24]}
          %y: T[n, 9, 24] = matmul(%r, %v)
          return %y
        }"""),
}  # fmt: skip
"""The number of products, and a function of the type T."""
BLOCK = """
    symbol n in 1..64
    func @main(%x: T[n, 32], %g: T[32], %wq: T[32, 32], %wk: T[32, 32], %wv: T[32, 32],
               %wo: T[32, 32], %h: T[16], %u: T[32, 96], %v: T[96, 32]) {
      %a: T[n, 32] = layer_norm(%x, %g, %g) {axis=1, epsilon=1e-05}
      %q: T[n, 32] = matmul(%a, %wq)
      %k: T[n, 32] = matmul(%a, %wk)
      %b: T[n, 32] = matmul(%a, %wv)
      %q2: T[n, 2, 16] = reshape(%q) {shape=[n, 2, 16]}
      %q3: T[n, 2, 16] = layer_norm(%q2, %h, %h) {axis=2, epsilon=1e-05}
      %q4: T[2, n, 16] = transpose(%q3) {perm=[1, 0, 2]}
      %k2: T[n, 2, 16] = reshape(%k) {shape=[n, 2, 16]}
      %k4: T[2, 16, n] = transpose(%k2) {perm=[1, 2, 0]}
      %b2: T[n, 2, 16] = reshape(%b) {shape=[n, 2, 16]}
      %b4: T[2, n, 16] = transpose(%b2) {perm=[1, 0, 2]}
      %s: T[2, n, n] = matmul(%q4, %k4)
      %p: T[2, n, n] = softmax(%s) {axis=2}
      %m: T[2, n, 16] = matmul(%p, %b4)
      %m2: T[n, 2, 16] = transpose(%m) {perm=[1, 0, 2]}
      %m3: T[n, 32] = reshape(%m2) {shape=[n, 32]}
      %o: T[n, 32] = matmul(%m3, %wo)
      %r: T[n, 32] = add(%x, %o)
      %c: T[n, 32] = layer_norm(%r, %g, %g) {axis=1, epsilon=1e-05}
      %d: T[n, 96] = matmul(%c, %u)
      %e: T[n, 96] = relu(%d)
      %f: T[n, 32] = matmul(%e, %v)
      %y: T[n, 32] = add(%r, %f)
      return %y
    }"""
"""A layer of a transformer, with its weights as inputs and normalized queries."""
UNITS = {"f16": "raot_mma", "f32": "raot_copy_async1_f32"}
"""What tiles of a type call."""


def module_of(text: str, kind: str) -> Module:
    whole = text if "symbol" in text else f"symbol n in 1..64\n{text}"
    return lowering.lower(transforms.run(parse(whole.replace("T[", f"{kind}["))))


def calls(kernel: Kernel, word: str) -> bool:
    return any(isinstance(s, Micro) and s.name.startswith(word) for s in walk(kernel.body))


def in_tiles(module: Module, kind: str, target: Target = cuda_mma.TARGET) -> list[str]:
    made = schedule_device(module, target)
    return [kernel.name for kernel in made.kernels if calls(kernel, UNITS[kind])]


@pytest.mark.parametrize("kind", UNITS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_weights_that_are_inputs_have_tiles(name: str, kind: str) -> None:
    count, text = PRODUCTS[name]
    module = module_of(text, kind)
    fused = fuse(module, fusion_policy(cuda_mma.TARGET)).module
    assert len(in_tiles(fused, kind)) == count, [kernel.name for kernel in fused.kernels]


@pytest.mark.parametrize("name", PRODUCTS)
def test_without_the_policy_they_are_rows(name: str) -> None:
    """What the policy is for; with --optimize memory, rows are kept where they need less."""
    count, text = PRODUCTS[name]
    assert len(in_tiles(fuse(module_of(text, "f16"), MEMORY).module, "f16")) < count


@pytest.mark.parametrize("name", PRODUCTS)
def test_kernels_that_stay_apart_compute_the_same(name: str) -> None:
    module = module_of(PRODUCTS[name][1], "f32")
    fused = fuse(module, fusion_policy(cuda_mma.TARGET)).module
    for number, sizes in enumerate(random_sizes(module, Random(name), 2)):
        inputs = random_inputs(module, sizes, number)
        wanted, found = (run_module(m, inputs, sizes)["y"] for m in (module, fused))
        np.testing.assert_array_equal(found, wanted, err_msg=str(sizes))


def test_a_layer_with_weights_that_are_inputs_has_one_attention_and_products() -> None:
    module = module_of(BLOCK, "f16")
    fused = fuse(module, fusion_policy(cuda_mma.TARGET)).module
    outs = [v for call in fused.main.body for v in call.outs]
    squares = [v for v in outs if v.type.elements.evaluate({"n": 1000}) >= 10**6]
    assert not squares, "scores are not stored"
    assert len(in_tiles(fused, "f16")) == 7, "six products and an attention"


def test_products_for_which_a_device_has_no_tiles_share_rows() -> None:
    """Those of integers of 32 bits."""
    module = module_of(PRODUCTS["a chain"][1], "i32")
    plain, fused = (fuse(module, p).module for p in (Policy(), fusion_policy(cuda.TARGET)))
    assert len(fused.kernels) == len(plain.kernels) == 1


def test_targets_that_are_no_devices_merge_as_before() -> None:
    assert {fusion_policy(target) for target in all_targets()} == {Policy()}


def test_summaries_tell_why_products_stay_apart() -> None:
    fused = fuse(module_of(PRODUCTS["a softmax behind"][1], "f16"), fusion_policy(cuda.TARGET))
    assert [one.reason for one in fused.summary.apart] == [
        "a product would not be computed in tiles"
    ]
