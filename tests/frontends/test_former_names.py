# SPDX-License-Identifier: Apache-2.0
"""Texts with the op names of older versions are still read."""

from __future__ import annotations

import logging

import pytest

import relax_aot as rx
from relax_aot.ops import all_ops, former_names

OLD = """
func @main(%x: i8[1, 4, 4, 2]) {
  %y = max_pool_last(%x) {kernel=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0]}  # former
  return %y
}
"""


def test_former_names_are_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "relax_aot"):
        module = rx.parse(OLD)
    assert "max_pool_last is now called max_pool_nhwc" in caplog.text  # the former name
    assert str(module).startswith("relax_aot text 2\n")
    assert "= max_pool_nhwc(%x)" in str(module)
    caplog.clear()
    assert rx.parse(str(module)) == module
    assert not caplog.text


def test_a_former_name_is_no_other_name() -> None:
    former = [old for op in all_ops().values() for old in op.former]
    assert len(former) == len(set(former)) == len(former_names())
    assert not former_names().keys() & all_ops().keys()


@pytest.mark.parametrize("line", ["relax_aot text 3", "relax_aot text", "relax_aot 2"])
def test_an_unknown_version_is_one_message(line: str) -> None:
    with pytest.raises(rx.RelaxAotError, match=r"line 1, column .*expected .*version of the text"):
        rx.parse(line + "\n" + OLD)
