# SPDX-License-Identifier: Apache-2.0
"""Whether a node keeps the rules of its operator, as the `onnx` package checks them."""

from __future__ import annotations

import onnx.checker
import onnx.defs
import onnx.shape_inference
from onnx import TensorProto, TypeProto

from relax_aot.errors import RelaxAotError
from relax_aot.frontends.onnx.context import Node
from relax_aot.frontends.onnx.prepare import DOMAINS
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.graph import Var
from relax_aot.ir.types import DType

_TYPES = {
    dtype: getattr(TensorProto, name)
    for dtype, name in (
        (DType.F32, "FLOAT"), (DType.F64, "DOUBLE"), (DType.F16, "FLOAT16"),
        (DType.BF16, "BFLOAT16"), (DType.BOOL, "BOOL"), (DType.I8, "INT8"), (DType.I16, "INT16"),
        (DType.I32, "INT32"), (DType.I64, "INT64"), (DType.U8, "UINT8"), (DType.U16, "UINT16"),
        (DType.U32, "UINT32"), (DType.U64, "UINT64"),
    )
}  # fmt: skip


def breach(node: Node) -> str | None:
    """The rule that the node breaks; "" for none, None for an operator without a schema."""
    proto = node.proto
    if proto.domain not in DOMAINS:
        return None
    try:
        schema = onnx.defs.get_schema(proto.op_type, node.opset, "")
        context = onnx.checker.C.CheckerContext()
        context.ir_version = onnx.IR_VERSION
        context.opset_imports = {"": node.opset}
        onnx.checker.check_node(proto, context)
        types = {name: _type(node, name) for name in proto.input if name}
        onnx.shape_inference.infer_node_outputs(
            schema, proto, {name: type_ for name, type_ in types.items() if type_ is not None},
            opset_imports=[onnx.helper.make_opsetid("", node.opset)],
        )  # fmt: skip
    except onnx.defs.SchemaError:
        return None
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error).strip().partition("\n")[0]
    except (RuntimeError, TypeError, ValueError, KeyError, RelaxAotError, Refused):
        return None  # the checker cannot read the node, or an argument is unknown
    return ""


def _type(node: Node, name: str) -> TypeProto | None:
    """The type of an argument; sizes that depend on symbols are open."""
    if node.is_list(name):
        return None
    value: Var = node.value(name)
    element = _TYPES.get(value.type.dtype)
    if element is None:
        return None
    shape = [size.constant if size.is_constant else None for size in value.type.shape]
    return onnx.helper.make_tensor_type_proto(element, shape)
