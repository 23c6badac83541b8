# SPDX-License-Identifier: Apache-2.0
"""Kernels in the device form, written by hand: each feature of the form in a few lines."""

from __future__ import annotations

ELEMENTS = """
kernel @elements(%x: f32[n, m]) -> (%y: f32[n, m]) {
  for b in 0..(n*m + 63)//64 parallel(block) {
    for t in 0..64 parallel(thread) {
      let i = 64*b + t
      if (index(i) < index(n*m)) {
        let r = i // m
        let c = i - m*r
        %y[r, c] = tanh(%x[r, c])
      }
    }
  }
}
"""
"""One thread for each element."""

TRANSPOSE = """
kernel @transpose(%x: f32[n, m]) -> (%y: f32[m, n]) {
  let across = (m + 7)//8
  for b in 0..((n + 7)//8)*((m + 7)//8) parallel(block) {
    let top = 8*(b // across)
    let left = 8*(b % across)
    reserve %tile: f32[8, 9] in shared
    for t in 0..64 parallel(thread) {
      let i = t // 8
      let j = t % 8
      if ((index(top + i) < index(n)) && (index(left + j) < index(m))) {
        %tile[i, j] = %x[top + i, left + j]
      }
      barrier thread
      if ((index(left + i) < index(m)) && (index(top + j) < index(n))) {
        %y[left + i, top + j] = %tile[j, i]
      }
    }
  }
}
"""
"""A tile in shared memory, and a barrier."""

SUMS = """
kernel @sums(%x: f32[n, m]) -> (%y: f32[n]) {
  for b in 0..n parallel(block) {
    reserve %parts: f32[4] in shared
    reserve %row: f32[4, 32] in shared
    for w in 0..4 parallel(warp) {
      reserve %sum: f32[32] in lane
      for l in 0..32 parallel(lane) {
        local total: f32 = 0.0:f32
        for k in 0..(m + 127 - 32*w - l)//128 {
          total = (total + %x[b, 128*k + 32*w + l])
        }
        %sum[l] = total
      }
      for l in 0..32 parallel(lane) {
        %row[w, l] = %sum[l]
      }
      for l in 0..32 parallel(lane) {
        if (index(l) == 0:i64) {
          local all: f32 = 0.0:f32
          for k in 0..32 {
            all = (all + %row[w, k])
          }
          %parts[w] = all
        }
      }
      barrier warp
      for l in 0..32 parallel(lane) {
        if ((index(l) == 0:i64) && (index(w) == 0:i64)) {
          %y[b] = (((%parts[0] + %parts[1]) + %parts[2]) + %parts[3])
        }
      }
    }
  }
}
"""
"""Warps that share a row, their lanes' registers and sums in shared memory."""


PEAKS = """
kernel @peaks(%x: f32[n, m]) -> (%y: f32[n]) {
  for b in 0..n parallel(block) {
    reserve %peak: f32[1] in shared
    for w in 0..1 parallel(warp) {
      for l in 0..32 parallel(lane) {
        if (index(l) == 0:i64) {
          %peak[0] = %x[b, 0]
        }
      }
      for k in 1..m {
        if (%peak[0] < %x[b, k]) {
          for l in 0..32 parallel(lane) {
            if (index(l) == 31:i64) {
              %peak[0] = %x[b, k]
            }
          }
        }
      }
      for l in 0..32 parallel(lane) {
        if (index(l) == 7:i64) {
          %y[b] = %peak[0]
        }
      }
    }
  }
}
"""
"""A condition on memory that lanes change behind it."""

PICKS = """
kernel @picks(%x: f32[n, m]) -> (%y: f32[n]) {
  for b in 0..n parallel(block) {
    reserve %row: f32[2, 32] in shared
    for w in 0..2 parallel(warp) {
      for l in 0..32 parallel(lane) {
        bind k in 0..m - 1 = cast((%x[b, 0] + cast(index(l), f32, wrap)), i64, wrap)
        %row[w, l] = %x[b, k]
      }
      for l in 0..32 parallel(lane) {
        if (index(l) == 3:i64) {
          %row[w, 5] = (%row[w, 30] + 1.0:f32)
        }
      }
      barrier warp
      for l in 0..32 parallel(lane) {
        if ((index(l) == 0:i64) && (index(w) == 0:i64)) {
          %y[b] = (%row[0, 5] + %row[1, 5])
        }
      }
    }
  }
}
"""
"""Indices from data that some lanes refuse."""

HEAD = """
symbol n in 1..40
symbol m in 1..300

func @main(%x: f32[n, m]) {
  return %x
}
"""


def module(*kernels: str) -> str:
    """The text of a module that has these kernels."""
    return HEAD + "".join(kernels)
