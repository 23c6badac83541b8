# SPDX-License-Identifier: Apache-2.0
"""Mergers that the checker has to prove, each of another kind."""

from __future__ import annotations

FLAT = """
symbol n in 1..4
symbol m in 1..5
func @main(%x: f32[n, m]) {
  %t: f32[n, m] = call_kernel(%x) {kernel=@scaled}
  %y: f32[m, n] = call_kernel(%t) {kernel=@transpose}
  return %y
}
kernel @scaled(%a: f32[n, m]) -> (%o: f32[n, m]) {
  for i in 0..n*m {
    %o[i // m, i % m] = (%a[i // m, i % m] * 2.0:f32)
  }
}
kernel @transpose(%a: f32[n, m]) -> (%o: f32[m, n]) {
  for i in 0..m {
    for j in 0..n {
      %o[i, j] = %a[j, i]
    }
  }
}
"""

DIAGONAL = """
symbol n in 1..5
func @main(%x: i32[n]) {
  %t: i32[n] = call_kernel(%x) {kernel=@reverse}
  %y: i32[n, n] = call_kernel(%t) {kernel=@diagonal}
  return %y
}
kernel @reverse(%a: i32[n]) -> (%o: i32[n]) {
  for i in 0..n {
    %o[n - 1 - i] = max(%a[i], 0:i32)
  }
}
kernel @diagonal(%a: i32[n]) -> (%o: i32[n, n]) {
  for i in 0..n {
    for j in 0..n {
      %o[i, j] = 1:i32
    }
  }
  for i in 0..n {
    %o[i, i] = (%o[i, i] + %a[i])
  }
}
"""

TWO_PARTS = """
func @main(%x: f32[4]) {
  %t: f32[4] = call_kernel(%x) {kernel=@halves}
  %y: f32[4] = call_kernel(%t) {kernel=@added}
  return %y
}
kernel @halves(%a: f32[4]) -> (%o: f32[4]) {
  for i in 0..2 {
    %o[i] = 3.0:f32
  }
  for i in 0..2 {
    %o[i + 2] = %a[i]
  }
}
kernel @added(%a: f32[4]) -> (%o: f32[4]) {
  for i in 0..4 {
    %o[i] = 2.0:f32
  }
  for i in 0..4 {
    %o[i] = (%o[i] + %a[i])
  }
}
"""

EQUAL_BRANCHES = """
symbol n in 1..5
func @main(%x: i32[n]) {
  %t: i32[n] = call_kernel() {kernel=@fill}
  %y: i32[n] = call_kernel(%t, %x) {kernel=@choose}
  return %y
}
kernel @fill() -> (%o: i32[n]) {
  for i in 0..n {
    %o[i] = -2:i32
  }
}
kernel @choose(%a: i32[n], %b: i32[n]) -> (%o: i32[n]) {
  for i in 0..n {
    %o[i] = select((%a[i] < 0:i32), (%b[i] + %a[i]), (%b[i] + %a[n - 1 - i]))
  }
}
"""

SCATTERED = """
symbol e in 1..5
func @main(%x: f32[3, 2], %from: i32[e], %at: i32[e, 2]) {
  %t: f32[e, 2] = call_kernel(%x, %from) {kernel=@gather}
  %y: f32[4, 2] = call_kernel(%t, %at) {kernel=@scatter}
  return %y
}
kernel @gather(%x: f32[3, 2], %from: i32[e]) -> (%o: f32[e, 2]) {
  for i in 0..e {
    checked k in 0..2 = %from[i]
    for j in 0..2 {
      %o[i, j] = %x[k, j]
    }
  }
}
kernel @scatter(%a: f32[e, 2], %at: i32[e, 2]) -> (%o: f32[4, 2]) {
  for i in 0..4 {
    for j in 0..2 {
      %o[i, j] = 0.0:f32
    }
  }
  for i in 0..e {
    for j in 0..2 {
      checked k in 0..3 = %at[i, j]
      %o[k, j] = (%o[k, j] + %a[i, j])
    }
  }
}
"""

RUNNING = """
symbol n in 1..4
symbol m in 1..5
func @main(%x: f32[n, m]) {
  %t: f32[n, m] = cum_sum(%x) {axis=1}
  %y: f32[n, m] = softmax(%t) {axis=1}
  return %y
}
"""

BORDERED = """
symbol n in 1..4
symbol m in 1..5
func @main(%x: f32[n, m]) {
  %a: f32[n, m] = relu(%x)
  %p: f32[n, m + 3] = pad(%a) {after=[0, 2], before=[0, 1], mode="constant"}
  %y: f32[n, m + 3] = softmax(%p) {axis=1}
  return %y
}
"""

CENTERED = """
symbol n in 1..4
symbol m in 1..5
func @main(%x: f32[n, 4, m]) {
  %p: f32[n, 6, m + 1] = pad(%x) {after=[0, 2, 0], before=[0, 0, 1], mode="constant"}
  %t: f32[n, 1, m + 1] = reduce(%p) {axes=[1], keepdims=true, kind="mean"}
  %y: f32[n, 6, m + 1] = sub(%p, %t)
  return %y
}
"""

PROVEN = {
    "flat": FLAT,
    "diagonal": DIAGONAL,
    "two parts": TWO_PARTS,
    "equal branches": EQUAL_BRANCHES,
    "scattered by element": SCATTERED,
    "running sums of a row": RUNNING,
    "a row with a border": BORDERED,
    "columns with a border": CENTERED,
}
