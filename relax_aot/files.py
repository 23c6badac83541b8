# SPDX-License-Identifier: Apache-2.0
"""Contents of files by relative path. Large ones are in pieces, which are written one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Piece = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Block:
    """Contents that are not joined in memory. `pieces` may be called again."""

    pieces: Callable[[], Iterable[Piece]]
    size: int


@dataclass(frozen=True)
class Files(Mapping[str, bytes]):
    """Short contents, and blocks, which are joined each time that they are read by name."""

    short: Mapping[str, bytes]
    blocks: Mapping[str, Block] = field(default_factory=dict)

    def __getitem__(self, path: str) -> bytes:
        block = self.blocks.get(path)
        return self.short[path] if block is None else b"".join(block.pieces())

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self.short, *self.blocks}))

    def __len__(self) -> int:
        return len({*self.short, *self.blocks})

    def __contains__(self, path: object) -> bool:
        return path in self.blocks or path in self.short

    def __or__(self, short: Mapping[str, bytes]) -> Files:
        """With other contents of some paths, or further ones."""
        kept = {path: block for path, block in self.blocks.items() if path not in short}
        return Files({**self.short, **short}, kept)


def write_file(path: Path, files: Mapping[str, bytes], name: str) -> None:
    """The contents of a name, which may be a block; the folder of the path is made."""
    block = files.blocks.get(name) if isinstance(files, Files) else None
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.writelines((files[name],) if block is None else block.pieces())


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name in files:
        write_file(folder / name, files, name)
