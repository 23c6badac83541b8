# SPDX-License-Identifier: Apache-2.0
"""Kernels in the device form as CUDA C++: what stands in the text."""

from __future__ import annotations

import re

from relax_aot.emit.cuda_module import DeviceSource, Frame, Given, Note, device_source
from relax_aot.ir.parse import parse
from tests.cuda.kernels import PEAKS, module

ROWS = """
symbol n in 1..64

func @main(%x: f32[n, 64]) {
  %y: f32[n, 64] = call_kernel(%x) {kernel=@NAME}
  return %y
}

kernel @NAME(%x: f32[n, 64]) -> (%y: f32[n, 64]) {
  for b in 0..n parallel(block) {
    reserve %row: f32[64] in shared
    for w in 0..1 parallel(warp) {
      reserve %part: f32[32, 2] in lane
      for l in 0..32 parallel(lane) {
        for k in 0..2 {
          %part[l, k] = %x[b, 2*l + k]
        }
      }
      for l in 0..32 parallel(lane) {
        for k in 0..2 {
          %row[2*l + k] = %part[l, k]
        }
      }
      local first: f32 = %part[3, 1]
      for l in 0..32 parallel(lane) {
        for k in 0..2 {
          %y[b, 32*k + l] = (%row[63 - 32*k - l] + first)
        }
      }
    }
  }
}
"""


def _printed(text: str, frame: Frame | None = None) -> DeviceSource:
    module = parse(text)
    return device_source("model", module.kernels, module.bounds, frame)


def _body(source: DeviceSource, name: str) -> str:
    found = re.search(rf" {name}\([^{{]*\n{{\n(.*?)\n}}\n", source.text, re.DOTALL)
    assert found
    return found[1]


def test_memory_is_ordered_between_lanes_that_share_it_and_nowhere_else() -> None:
    body = _body(_printed(ROWS.replace("NAME", "rows")), "rows")
    assert body.count("__syncwarp();") == 1
    assert body.index("row[") < body.index("__syncwarp();") < body.rindex("row[")


SAME = """
symbol n in 1..64

func @main(%x: f32[n, 32]) {
  %y: f32[n, 32] = call_kernel(%x) {kernel=@mirrored}
  return %y
}

kernel @mirrored(%x: f32[n, 32]) -> (%y: f32[n, 32]) in_place (%x = %y) {
  for b in 0..n parallel(block) {
    for w in 0..1 parallel(warp) {
      reserve %part: f32[32] in lane
      for l in 0..32 parallel(lane) {
        %part[l] = %x[b, 31 - l]
      }
      for l in 0..32 parallel(lane) {
        %y[b, l] = %part[l]
      }
    }
  }
}
"""


def test_buffers_that_may_be_the_same_memory_are_ordered() -> None:
    assert _body(_printed(SAME), "mirrored").count("__syncwarp();") == 1
    apart = _printed(SAME.replace("in_place (%x = %y)", ""))
    assert _body(apart, "mirrored").count("__syncwarp();") == 0


def test_lanes_know_a_condition_before_one_of_them_changes_what_it_reads() -> None:
    body = _body(_printed(module(PEAKS)), "peaks")
    assert "const bool holds = peak[0] < x[b * m + k];\n        __syncwarp();\n" in body
    assert "if (holds) {" in body


def test_registers_of_a_lane_are_an_array_of_its_thread() -> None:
    body = _body(_printed(ROWS.replace("NAME", "rows")), "rows")
    assert "float part[2];" in body
    assert "__shared__ __align__(16) float row[64];" in body
    assert "__shfl_sync(0xffffffffu, part[1], 3)" in body
    # The first two loops index registers, the last one memory alone.
    assert body.count("#pragma unroll") == 2


CHOSEN = """
symbol n in 1..64

func @main(%x: f32[1, n], %i: i64[n]) {
  %y: f32[n] = call_kernel(%x, %i) {kernel=@chosen}
  return %y
}

kernel @chosen(%x: f32[1, n], %i: i64[n]) -> (%y: f32[n]) {
  for b in 0..n parallel(block) {
    for t in 0..1 parallel(thread) {
      checked row in 0..0 = %i[b]
      %y[b] = %x[row, b]
    }
  }
}
"""


def test_operands_that_no_statement_reads_are_named() -> None:
    """An index into one row is 0; strict flags refuse the parameter that it is not read from."""
    body = _body(_printed(CHOSEN), "chosen")
    assert body.count("(void)") == 1
    assert "(void)i;" in body


def test_sizes_from_data_are_words_of_the_frame() -> None:
    frame = Frame(fallible=True, sizes={"n": 5})
    source = _printed(ROWS.replace("NAME", "rows"), frame=frame)
    (launch,) = source.launches["rows"]
    assert [one.given for one in launch.parameters] == [Given.FRAME, Given.BUFFER, Given.BUFFER]
    body = _body(source, "rows")
    assert "const int32_t n = frame[5];" in body
    assert "if ((int32_t)blockIdx.x >= n) {" in body
    assert body.index("if (raot_failed(frame)) {") < body.index("frame[5]")


def test_a_value_may_be_called_as_a_size_or_a_word_is() -> None:
    kernel = PEAKS.replace("%x", "%frame").replace("%y", "%m")
    source = _printed(module(kernel), frame=Frame(fallible=True))
    (launch,) = source.launches["peaks"]
    found = re.search(r" peaks\(([^{]*)\)\n{", source.text)
    assert found
    names = [re.findall(r"\w+", one)[-1] for one in found[1].split(",")]
    assert names[0] == "frame"
    assert len(set(names)) == len(names) == len(launch.parameters)
    body = _body(source, "peaks")
    assert all(re.search(rf"\b{name}\b", body) for name in names)


def test_kernels_that_differ_by_names_share_a_function() -> None:
    other = re.search(r"^kernel.*", ROWS, re.DOTALL | re.MULTILINE)
    assert other
    text = ROWS.replace("NAME", "rows") + other[0].replace("NAME", "others").replace("%row", "%p")
    module = parse(text)
    notes = {"rows": Note("%y = f(%x)", "/one"), "others": Note("%z = f(%y)", "/two")}
    source = device_source("model", module.kernels, module.bounds, notes=notes)
    assert "/*\n * %y = f(%x)\n * from /one, /two\n */\n" in source.text
    names = {launch.c_name for found in source.launches.values() for launch in found}
    assert names == {"rows"}
    assert len(source.launches) == 2
