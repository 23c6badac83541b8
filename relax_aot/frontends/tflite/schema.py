# SPDX-License-Identifier: Apache-2.0
"""What of TensorFlow Lite's schema is read: numbers of operators and fields of their options.

Source: tensorflow/lite/schema/schema.fbs, version 3. Fields stand in the order of the schema;
a letter says what each is (as for `struct`, `v` for a vector of int32), then its default.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSION = 3
IDENTIFIER = b"TFL3"


@dataclass(frozen=True, slots=True)
class Field:
    slot: int
    kind: str
    default: float = 0


def _fields(text: str) -> dict[str, Field]:
    found = {}
    for slot, word in enumerate(text.split()):
        name, _, rest = word.partition(":")
        kind, _, default = rest.partition("=")
        found[name] = Field(slot, kind, float(default or 0) if kind == "f" else int(default or 0))
    return found


_OPERATORS = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1
RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM
CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM
CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE
SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK
REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG
REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL
BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
RIGHT_SHIFT
"""
OPERATORS = tuple(_OPERATORS.split())
"""Built-in operators by number."""

CUSTOM = OPERATORS.index("CUSTOM")
PLACEHOLDER = OPERATORS.index("PLACEHOLDER_FOR_GREATER_OP_CODES")

_REDUCER = _fields("keep_dims:b")
_POOL = _fields("padding:b stride_w:i stride_h:i filter_width:i filter_height:i activation:b")
_ACTIVATION = _fields("activation:b")
OPTIONS = {
    "ADD": _fields("activation:b pot_scale_int16:b=1"),
    "ARG_MAX": _fields("output_type:b"),
    "ARG_MIN": _fields("output_type:b"),
    "AVERAGE_POOL_2D": _POOL,
    "BATCH_MATMUL": _fields("adj_x:b adj_y:b asymmetric:b"),
    "CAST": _fields("in_type:b out_type:b"),
    "CONCATENATION": _fields("axis:i activation:b"),
    "CONV_2D": _fields(
        "padding:b stride_w:i stride_h:i activation:b dilation_w:i=1 dilation_h:i=1 bias_type:b"
    ),
    "CUMSUM": _fields("exclusive:b reverse:b"),
    "DEPTHWISE_CONV_2D": _fields(
        "padding:b stride_w:i stride_h:i multiplier:i activation:b dilation_w:i=1 dilation_h:i=1"
    ),
    "DEPTH_TO_SPACE": _fields("block_size:i"),
    "DIV": _ACTIVATION,
    "FULLY_CONNECTED": _fields(
        "activation:b weights_format:b keep_num_dims:b asymmetric:b bias_type:b"
    ),
    "GATHER": _fields("axis:i batch_dims:i"),
    "GELU": _fields("approximate:b"),
    "L2_NORMALIZATION": _ACTIVATION,
    "L2_POOL_2D": _POOL,
    "LEAKY_RELU": _fields("alpha:f"),
    "MAX_POOL_2D": _POOL,
    "MEAN": _REDUCER,
    "MIRROR_PAD": _fields("mode:b"),
    "MUL": _ACTIVATION,
    "ONE_HOT": _fields("axis:i"),
    "PACK": _fields("values_count:i axis:i"),
    "REDUCE_ALL": _REDUCER,
    "REDUCE_ANY": _REDUCER,
    "REDUCE_MAX": _REDUCER,
    "REDUCE_MIN": _REDUCER,
    "REDUCE_PROD": _REDUCER,
    "RESHAPE": _fields("new_shape:v"),
    "RESIZE_BILINEAR": _fields("height:i width:i align_corners:b half_pixel_centers:b"),
    "RESIZE_NEAREST_NEIGHBOR": _fields("align_corners:b half_pixel_centers:b"),
    "REVERSE_SEQUENCE": _fields("seq_dim:i batch_dim:i"),
    "SHAPE": _fields("out_type:b"),
    "SOFTMAX": _fields("beta:f"),
    "SPACE_TO_DEPTH": _fields("block_size:i"),
    "SPLIT": _fields("num_splits:i"),
    "SPLIT_V": _fields("num_splits:i"),
    "SQUEEZE": _fields("dims:v"),
    "STRIDED_SLICE": _fields(
        "begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i offset:b"
    ),
    "SUB": _fields("activation:b pot_scale_int16:b=1"),
    "SUM": _REDUCER,
    "SVDF": _fields("rank:i activation:b asymmetric:b"),
    "TRANSPOSE_CONV": _fields("padding:b stride_w:i stride_h:i activation:b bias_type:b"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _fields(
        "activation:b cell_clip:f proj_clip:f time_major:b asymmetric:b diagonal:b"
    ),
    "UNIDIRECTIONAL_SEQUENCE_RNN": _fields("time_major:b activation:b asymmetric:b"),
    "UNPACK": _fields("num:i axis:i"),
}
"""Options of the operators that have some."""

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")

_TYPES = """
f32 f16 i32 u8 i64 string bool i16 complex64 i8 f64 complex128 u64 resource variant u32 u16 i4
bf16 i2 u4 f8e4m3fn f8e5m2
"""
TYPES = tuple(_TYPES.split())
"""Element types by number, by our names where we have them."""
