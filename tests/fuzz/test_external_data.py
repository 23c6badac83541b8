# SPDX-License-Identifier: Apache-2.0
"""External data is read only from plain files in the folder of the model.

Every model here is one honest initializer away from compiling, which the first test shows.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relax_aot as rx
from relax_aot.errors import RelaxAotError

SECRET = np.arange(1, 5, dtype=np.float32)
Place = Callable[[Path], None]


def outside(folder: Path) -> Path:
    """A file next to the model's folder, correct except for its location."""
    path = folder.parent / "secret.bin"
    path.write_bytes(SECRET.tobytes())
    return path


def nothing(folder: Path) -> None:
    outside(folder)


def link(folder: Path) -> None:
    (folder / "w.bin").symlink_to(outside(folder))


def link_of_a_folder(folder: Path) -> None:
    outside(folder)
    (folder / "sub").symlink_to(folder.parent)


def link_within(folder: Path) -> None:
    (folder / "real.bin").write_bytes(SECRET.tobytes())
    (folder / "w.bin").symlink_to(folder / "real.bin")


def hard_link(folder: Path) -> None:
    os.link(outside(folder), folder / "w.bin")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "w.bin")


def a_folder(folder: Path) -> None:
    (folder / "w.bin").mkdir()


def a_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        home = Path.cwd()
        os.chdir(folder)
        try:
            made.bind("w.bin")
        finally:
            os.chdir(home)


def honest(folder: Path) -> None:
    (folder / "w.bin").write_bytes(SECRET.tobytes())


@dataclass(frozen=True)
class Attack:
    entries: dict[str, str] = field(default_factory=dict)
    place: Place = honest
    said: str = ""
    dims: tuple[int, ...] = (4,)


def at(location: str, place: Place = nothing, said: str = "plain paths") -> Attack:
    return Attack({"location": location}, place, said)


def numbers(said: str, **entries: str) -> Attack:
    return Attack({"location": "w.bin", **entries}, honest, said)


ATTACKS = {
    "up": at("../secret.bin"),
    "up_and_down": at("sub/../../secret.bin"),
    "up_within": at("./../secret.bin"),
    "absolute": at("{parent}/secret.bin"),
    "system_file": at("/etc/passwd"),
    "device": at("/dev/zero"),
    "process_folder": at("/proc/self/environ"),
    "two_slashes": at("//{parent}/secret.bin"),
    "backslashes": at("..\\secret.bin"),
    "drive": at("C:secret.bin"),
    "url": at("file://{parent}/secret.bin"),
    "nul": at("w.bin\0.txt", honest),
    "nul_before_up": at("w.bin\0/../../secret.bin", honest),
    "percent": at("%2e%2e/secret.bin", said="No such file"),
    "home": at("~/secret.bin", said="No such file"),
    "variable": at("$HOME/secret.bin", said="No such file"),
    "wide_dots": at("\uff0e\uff0e/secret.bin", said="No such file"),
    "empty": at(""),
    "the_folder": at("."),
    "link": at("w.bin", link, "links"),
    "link_of_a_folder": at("sub/secret.bin", link_of_a_folder, "links"),
    "link_within": at("w.bin", link_within, "links"),
    "hard_link": at("w.bin", hard_link, "second name"),
    "pipe": at("w.bin", pipe, "regular"),
    "folder": at("w.bin", a_folder, "regular"),
    "socket": at("w.bin", a_socket, "regular"),
    "long_name": at("a" * 5000, said="too long"),
    "no_location": Attack({"length": "16"}, honest, "plain paths"),
    "offset_beyond": numbers("file of 16", offset="16", length="16"),
    "offset_negative": numbers("not a number", offset="-16"),
    "offset_huge": numbers("file of 16", offset="9223372036854775807", length="16"),
    "offset_wraps": numbers("not a number", offset="18446744073709551616"),
    "offset_hexadecimal": numbers("not a number", offset="0x0"),
    "offset_spaces": numbers("not a number", offset=" 0"),
    "offset_other_digits": numbers("not a number", offset="\u0660"),
    "length_beyond": numbers("file of 16", length="4096"),
    "length_short": numbers("needed", length="15"),
    "length_zero": numbers("needed", length="0"),
    "length_negative": numbers("not a number", length="-1"),
    "length_huge": numbers("file of 16", length="9223372036854775807"),
    "more_elements": Attack({"location": "w.bin"}, honest, "needed", (1 << 20,)),
    "bomb": Attack({"location": "w.bin"}, honest, "sizes", (1 << 31, 1 << 31)),
    "negative_size": Attack({"location": "w.bin"}, honest, "sizes", (-4,)),
}  # fmt: skip


def tensor_of(attack: Attack, folder: Path) -> onnx.TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=attack.dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in attack.entries.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value.replace("{parent}", str(folder.parent))
    return tensor


def initializer(tensor: onnx.TensorProto) -> onnx.ModelProto:
    return whole([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def attribute(tensor: onnx.TensorProto) -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    return whole([constant, helper.make_node("Add", ["x", "c"], ["y"])])


def branch(tensor: onnx.TensorProto) -> onnx.ModelProto:
    def side(kind: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"o{kind}", TensorProto.FLOAT, [4])
        return helper.make_graph([helper.make_node(kind, ["x", "w"], [out.name])], kind, [], [out],
                                 [tensor])  # fmt: skip

    node = helper.make_node("If", ["f"], ["y"], then_branch=side("Add"), else_branch=side("Sub"))
    return whole([node])


def body(tensor: onnx.TensorProto) -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    own = helper.make_function("own", "F", ["a"], ["b"],
                               [constant, helper.make_node("Add", ["a", "c"], ["b"])],
                               [helper.make_opsetid("", 20)])  # fmt: skip
    model = whole([helper.make_node("F", ["x"], ["y"], domain="own")])
    model.functions.append(own)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def whole(
    nodes: list[onnx.NodeProto], tensors: list[onnx.TensorProto] | None = None
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
         helper.make_tensor_value_info("f", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        tensors or [],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


HOLDERS = (initializer, attribute, branch, body)


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    return made


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_plain_file_beside_the_model_is_read(
    holder: Callable[[onnx.TensorProto], onnx.ModelProto], folder: Path
) -> None:
    honest(folder)
    model = holder(tensor_of(Attack({"location": "w.bin"}), folder))
    found = rx.compile(saved(model, folder), name="m").host()(
        x=np.zeros(4, np.float32), f=np.array(True)
    )
    np.testing.assert_array_equal(found["y"], SECRET)


@pytest.mark.parametrize(
    ("name", "holder"),
    [(name, initializer) for name in ATTACKS]
    + [(name, holder) for name in ("up", "link", "bomb") for holder in HOLDERS[1:]],
)
def test_attacks_are_refused(
    name: str, holder: Callable[[onnx.TensorProto], onnx.ModelProto], folder: Path
) -> None:
    attack = ATTACKS[name]
    attack.place(folder)
    path = saved(holder(tensor_of(attack, folder)), folder)
    with pytest.raises(RelaxAotError) as caught:
        rx.compile(path, name="m")
    assert attack.said.lower() in str(caught.value).lower()


def test_a_model_without_a_folder_has_no_external_data(folder: Path) -> None:
    honest(folder)
    model = initializer(tensor_of(Attack({"location": "w.bin"}), folder))
    for source in (model, model.SerializeToString()):
        with pytest.raises(RelaxAotError, match="read from a file"):
            rx.compile(source, name="m")
