# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime, or ONNX's own reference, makes of a model: in a child process, since odd
sizes may end it. Run as a program it answers the pickled requests that it is given.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

Request = tuple[bytes, list[dict[str, Any]], bool]
"""A serialized model, inputs by name for each run, and whether ONNX Runtime is asked first."""
Reply = list[list[Any] | None]
"""For each run the outputs, or None where there is no answer."""

LIMIT_S = 20


def answers(requests: Sequence[Request]) -> list[Reply]:
    """A reply for each request; where the child ends or hangs, the next goes on with the rest."""
    replies: list[Reply] = []
    while len(replies) < len(requests):
        replies += _ask(requests[len(replies) :])
        if len(replies) < len(requests):
            replies.append([None] * len(requests[len(replies)][1]))
    return replies


def _ask(requests: Sequence[Request]) -> list[Reply]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.oracle"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    said, _ = child.communicate(pickle.dumps(list(requests)))
    replies: list[Reply] = []
    while said:
        length = int.from_bytes(said[:8], "little")
        if len(said) < 8 + length:
            break
        replies.append(pickle.loads(said[8 : 8 + length]))
        said = said[8 + length :]
    return replies


def _reply(model: bytes, feeds: Sequence[dict[str, Any]], runtime: bool) -> Reply:
    found = _by_runtime(model, feeds) if runtime else [None] * len(feeds)
    return [
        _by_reference(model, feed) if outputs is None else outputs
        for feed, outputs in zip(feeds, found, strict=True)
    ]


def _by_runtime(model: bytes, feeds: Sequence[dict[str, Any]]) -> Reply:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - whatever it says, it has no answer
        return [None] * len(feeds)
    replies: Reply = []
    for feed in feeds:
        try:
            replies.append(session.run(None, feed))
        except Exception:  # noqa: BLE001
            replies.append(None)
    return replies


def _by_reference(model: bytes, feed: dict[str, Any]) -> list[Any] | None:
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        outputs = ReferenceEvaluator(onnx.load_from_string(model)).run(None, feed)
    except BaseException:  # noqa: BLE001
        return None
    return list(outputs) if isinstance(outputs, list | tuple) else None


def main() -> None:
    import signal

    warnings.simplefilter("ignore")
    results = os.dup(1)
    os.dup2(2, 1)
    for model, feeds, runtime in pickle.load(sys.stdin.buffer):
        # The default action of the alarm ends this child; the parent goes on behind the model.
        signal.alarm(LIMIT_S)
        data = pickle.dumps(_reply(model, feeds, runtime))
        signal.alarm(0)
        os.write(results, len(data).to_bytes(8, "little"))
        with os.fdopen(os.dup(results), "wb") as stream:
            stream.write(data)


if __name__ == "__main__":
    main()
