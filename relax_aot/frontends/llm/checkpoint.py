# SPDX-License-Identifier: Apache-2.0
"""A folder in the layout of Hugging Face: config.json, and weights in safetensors files. Or a GGUF
file or a model of llama2.c, which hold both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.gguf import GgufTensor, read_gguf
from relax_aot.frontends.llm.gguf_names import config_of, form_of, named
from relax_aot.frontends.llm.json_file import read_json
from relax_aot.frontends.llm.llama2c import SUFFIX, read_llama2c
from relax_aot.frontends.llm.safetensors import Tensor, read
from relax_aot.ops._op import Array

CONFIG, WHOLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
GGUF = ".gguf"
FACTORS = ((("", ".ALinear"), ("", ".BLinear")), (("_proj", "_u_proj"), ("_proj", "_v_proj")))
"""What ends the names of the factors of weights of low rank, in place of what, as ASVD (Yuan et
al., arXiv:2312.05821) and SVD-LLM (Wang et al., arXiv:2403.07378) write them."""
SHOWN = 5
"""Names in one message."""


@dataclass(frozen=True, slots=True)
class _View:
    """Another form of a tensor of a file."""

    whole: Stored

    @property
    def file(self) -> str:
        return self.whole.file

    @property
    def kind(self) -> str:
        return self.whole.kind

    @property
    def kinds(self) -> str:
        return self.whole.kinds

    @property
    def is_read(self) -> bool:
        return self.whole.is_read


@dataclass(frozen=True, slots=True)
class Rows(_View):
    """Rows of a tensor that holds the weights of several products."""

    rows: slice

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows.stop - self.rows.start, *self.whole.shape[1:])

    def array(self) -> Array:
        return np.asarray(self.whole.array()[self.rows])


@dataclass(frozen=True, slots=True)
class Ordered(_View):
    """A tensor whose numbers of heads are in another order. `by_rows`: they are its rows."""

    order: tuple[int, ...]
    by_rows: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.whole.shape

    def array(self) -> Array:
        inner = prod(self.shape[1:]) if self.by_rows else 1
        heads = self.whole.array().reshape(-1, len(self.order), inner)
        return np.ascontiguousarray(heads[:, list(self.order)]).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Transposed(_View):
    """The weights of a product, stored with inputs as rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.whole.shape[::-1]

    def array(self) -> Array:
        return np.ascontiguousarray(self.whole.array().T)


Stored = Tensor | GgufTensor | Rows | Ordered | Transposed


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The configuration of a model and its weights by their names."""

    name: str
    config: Config
    tensors: Mapping[str, Stored]

    def weights(self, name: str, shape: tuple[int, ...]) -> Array:
        """The weights `name`, which must have this shape."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise ModelError(f"{self.name} has no weights {name}, which its configuration needs")
        where = f"{tensor.file}: tensor {name}"
        if not tensor.is_read:
            raise UnsupportedError(
                f"{where} has the type {tensor.kind}, only {tensor.kinds} are supported"
            )
        if tensor.shape != shape:
            source = Path(self.config.file).name
            raise ModelError(
                f"{where} has the shape {list(tensor.shape)}, but {source} says {list(shape)}"
            )
        return tensor.array()

    def factors(self, at: str) -> tuple[str, str] | None:
        """The names of two matrices whose product is the weights of `at`; None if they are one."""
        if f"{at}.weight" in self.tensors:
            return None
        for outer, inner in FACTORS:
            names = at.removesuffix(outer[0]) + outer[1], at.removesuffix(inner[0]) + inner[1]
            if at.endswith(outer[0]) and all(f"{name}.weight" in self.tensors for name in names):
                return names
        return None

    def rows(self, at: str) -> int | None:
        """The number of rows of the weights of `at`, if they are there."""
        outer, _ = self.factors(at) or (at, at)
        tensor = self.tensors.get(f"{outer}.weight")
        return tensor.shape[0] if tensor is not None and tensor.shape else None

    def renamed(self, names: Sequence[tuple[str, str | None]]) -> Checkpoint:
        """With other names: parts that match a regular expression are replaced. None leaves a
        tensor out."""
        found: dict[str, Stored] = {}
        for name, tensor in self.tensors.items():
            to: str | None = name
            for pattern, text in names:
                if to is not None and re.search(pattern, to):
                    to = None if text is None else re.sub(pattern, text, to)
            if to in found:
                raise ModelError(f"{tensor.file}: tensor {printable(name)!r} is there twice")
            if to is not None:
                found[to] = tensor
        return replace(self, tensors=found)

    def divided(self, name: str, parts: Mapping[str, int]) -> Checkpoint:
        """With `parts`, of so many rows each, in place of the tensor `name`, if it is there."""
        whole = self.tensors.get(name)
        if whole is None or isinstance(whole, Rows) or parts.keys() & self.tensors.keys():
            return self
        if not whole.shape or whole.shape[0] != sum(parts.values()):
            raise ModelError(
                f"{whole.file}: tensor {name} has the shape {list(whole.shape)}, but"
                f" {Path(self.config.file).name} says {sum(parts.values())} rows"
            )
        tensors = {**self.tensors}
        del tensors[name]
        start = 0
        for part, rows in parts.items():
            tensors[part] = Rows(whole, slice(start, start + rows))
            start += rows
        return replace(self, tensors=tensors)

    def require_used(self, used: set[str], ignored: Callable[[str], bool]) -> None:
        """Refuse weights that nothing uses: the model would compute something else."""
        rest = sorted(name for name in self.tensors if name not in used and not ignored(name))
        if rest:
            shown = ", ".join(map(printable, rest[:SHOWN])) + (", ..." if rest[SHOWN:] else "")
            raise UnsupportedError(
                f"{self.name} has {len(rest)} tensors that its architecture does not have: {shown}"
            )


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a folder or a file. Its weights are mapped, not read."""
    if folder.suffix == SUFFIX:
        fields, arrays = read_llama2c(folder)
        return Checkpoint(folder.stem, Config(str(folder), fields), arrays)
    if folder.suffix == GGUF:
        metadata, tensors = read_gguf(folder)
        fields = config_of(str(folder), metadata, tensors)
        weights = named(form_of(str(folder), metadata), tensors, fields)
        return Checkpoint(folder.stem, Config(str(folder), fields), weights)
    require_folder(folder)
    config = Config(str(folder / CONFIG), read_json(folder / CONFIG))
    return Checkpoint(folder.resolve().name, config, _weights(folder))


def require_folder(folder: Path) -> None:
    """Refuse the path of a language model that is neither a folder nor a file of a known format."""
    if not folder.is_dir():
        raise ModelError(
            f"{folder} is no folder: a language model is a folder with {CONFIG} and {WHOLE}, or a"
            f" file *{GGUF}, or *{SUFFIX} of llama2.c"
        )


def _weights(folder: Path) -> dict[str, Tensor]:
    if (folder / WHOLE).is_file():
        return read(folder / WHOLE)
    if (folder / INDEX).is_file():
        return _shards(folder)
    pickled = next(iter(sorted(folder.glob("*.bin"))), None)
    hint = "" if pickled is None else f"; convert {pickled.name} to safetensors"
    raise ModelError(f"{folder} has neither {WHOLE} nor {INDEX}{hint}")


def _shards(folder: Path) -> dict[str, Tensor]:
    """The weights of several files, which an index lists."""
    index = folder / INDEX
    listed = read_json(index).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(f, str) for f in listed.values()):
        raise ModelError(f"{index} has no weight_map of files by tensor")
    found: dict[str, Tensor] = {}
    for file in sorted(set(listed.values())):
        if Path(file).name != file or "\\" in file or not file.isprintable():
            raise ModelError(f"{index}: {printable(file)!r} is not the name of a file")
        shard = read(folder / file)
        twice = sorted(shard.keys() & found.keys())
        if twice:
            raise ModelError(
                f"{folder}: tensor {printable(twice[0])!r} is in {found[twice[0]].file} and {file}"
            )
        found |= shard
    for name, file in listed.items():
        if name not in found or found[name].file != file:
            raise ModelError(f"{index}: {file} has no tensor {printable(name)!r}")
    return found
