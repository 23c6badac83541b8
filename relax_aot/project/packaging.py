# SPDX-License-Identifier: Apache-2.0
"""A generated project as other build systems want it: another layout, and their manifests.

Every kind is made from the files of the flat project. Where a build system takes no compiler
options from a library (Arduino, CMSIS-Pack) the C says what it needs of GCC itself.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from relax_aot.emit.c_names import comment
from relax_aot.emit.header import LICENSE
from relax_aot.emit.render import render
from relax_aot.emit.view import ModelView
from relax_aot.errors import RelaxAotError
from relax_aot.files import Block, Files
from relax_aot.version import VERSION

Contents = dict[str, bytes]

PACKAGE_VERSION = "1.0.0"
VENDOR = "relax_aot"
CORES = (
    "Cortex-M0", "Cortex-M0+", "Cortex-M3", "Cortex-M4", "Cortex-M7", "Cortex-M23", "Cortex-M33",
    "Cortex-M55", "Cortex-M85",
)  # fmt: skip
OPTIONS = ("-ffp-contract=off", "-fno-strict-aliasing")
PRAGMA = b"""#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-strict-aliasing", "fp-contract=off")
#endif
"""
MARKER = "relax_aot.json"
LISTED = "files"
DIGESTS = "sha256"
EDITABLE = "_config.h"
"""Files that users edit: the bounds."""
"""The entry of the marker that names every file of the project."""
"""Written into every project: tells our folders from other people's."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_WRITES_PLACES = ("zephyr", "esp-idf")
"""Kinds whose build can say where the assembler finds a block of constants."""


class PackageError(RelaxAotError):
    """A packaging that does not exist, or that this project cannot have."""


@dataclass(frozen=True, slots=True)
class PackageView:
    """What the templates of manifests see."""

    name: str
    prefix: str
    version: str
    generator: str
    vendor: str
    sentence: str
    sources: tuple[str, ...]
    headers: tuple[str, ...]
    block: str
    """The file of constants that the assembler includes, if there is one."""
    cores: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """A flat project, divided."""

    view: PackageView
    model: ModelView
    code: Contents
    """Sources and headers, by their path in the flat project."""
    rest: Contents
    """README, and the mark of our folders."""
    blocks: Mapping[str, Block]
    """Weights that are no C text."""


def package(kind: str, files: Files, units: tuple[str, ...], model: ModelView) -> Files:
    """The files of a project in the packaging called `kind`."""
    if kind == "flat":
        return files | {MARKER: _listed(files[MARKER], files)}
    if kind not in KINDS:
        raise PackageError(f"unknown packaging {kind!r}; known are: {', '.join(KINDS)}")
    if kind not in _WRITES_PLACES and model.weights.in_block and not model.interface.weights_apart:
        raise PackageError(
            f"the constants of {model.name} are a file that the assembler includes, which"
            f" {kind} cannot do; choose --weights c or --weights blob"
        )
    parts = _parts(kind, files, units, model)
    marker = _listed(files[MARKER], Files(KINDS[kind](parts), parts.blocks))
    made = KINDS[kind](replace(parts, rest=parts.rest | {MARKER: marker}))
    return Files(made, parts.blocks)


def _listed(marker: bytes, files: Mapping[str, bytes]) -> bytes:
    """With the names of all files, so that files that a user adds are told from ours, and digests
    of those that a user may edit."""
    edited = {
        name: hashlib.sha256(files[name]).hexdigest()
        for name in sorted(files)
        if name.endswith(EDITABLE)
    }
    said = json.loads(marker) | {LISTED: sorted(files), DIGESTS: edited}
    return (json.dumps(said, indent=1) + "\n").encode()


def _parts(kind: str, files: Files, units: tuple[str, ...], model: ModelView) -> Parts:
    block = f"{model.name}_weights.bin"
    linked = not model.interface.weights_apart or kind in _WRITES_PLACES
    sources = tuple(unit for unit in units if linked or unit != f"{model.name}_weights.c")
    headers = tuple(sorted(path for path in files if path.endswith(".h")))
    view = PackageView(
        name=model.name,
        prefix=model.prefix,
        version=PACKAGE_VERSION,
        generator=VERSION,
        vendor=VENDOR,
        sentence=f"The model {_plain(model.source)} as plain C.",
        sources=sources,
        headers=headers,
        block=block if block in files else "",
        cores=CORES,
    )
    code = {path: files[path] for path in (*sources, *headers)}
    readme = _readme(kind, files["README.md"], view)
    return Parts(
        view, model, code, {MARKER: files[MARKER], "README.md": readme}, dict(files.blocks)
    )


def _readme(kind: str, flat: bytes, view: PackageView) -> bytes:
    """What is said of the model stays; how to build it is of the kind."""
    model, _, _ = flat.partition(b"## Build it\n")
    return model + render(f"package/readme_{kind}.md.j2", package=view).encode()


def _plain(text: str) -> str:
    """Harmless in YAML, XML, JSON and properties: a model's name is not trusted."""
    return re.sub(r"[^A-Za-z0-9._/ +-]", "_", comment(text)) or "without a name"


def _zephyr(parts: Parts) -> Contents:
    return (
        parts.code
        | parts.rest
        | {
            "zephyr/module.yml": _text("zephyr_module.yml.j2", parts),
            "zephyr/Kconfig": _text("zephyr_kconfig.j2", parts),
            "zephyr/CMakeLists.txt": _text("zephyr_cmake.txt.j2", parts),
        }
    )


def _esp_idf(parts: Parts) -> Contents:
    return (
        parts.code
        | parts.rest
        | {
            "CMakeLists.txt": _text("idf_cmake.txt.j2", parts),
            "idf_component.yml": _text("idf_component.yml.j2", parts),
        }
    )


def _platformio(parts: Parts) -> Contents:
    view = parts.view
    manifest = {
        "name": view.name,
        "version": view.version,
        "description": view.sentence,
        "license": LICENSE,
        "keywords": ["inference", "onnx"],
        "frameworks": "*",
        "platforms": "*",
        "headers": [f"{view.name}.h"],
        "build": {"srcDir": "src", "includeDir": "src", "flags": list(OPTIONS)},
    }
    return _under_src(parts) | {"library.json": (json.dumps(manifest, indent=2) + "\n").encode()}


def _arduino(parts: Parts) -> Contents:
    sketch = render("package/sketch.ino.j2", package=parts.view, model=parts.model).encode()
    return _under_src(_by_pragma(parts)) | {
        "library.properties": _text("library.properties.j2", parts),
        f"examples/{parts.view.name}_once/{parts.view.name}_once.ino": sketch,
    }


def _cmsis_pack(parts: Parts) -> Contents:
    """The folder of a pack, and the pack itself."""
    view = parts.view
    folder = _under_src(_by_pragma(parts)) | {
        f"{VENDOR}.{view.name}.pdsc": _text("pack.pdsc.j2", parts)
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(folder.items()):
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), content)
        for path, block in sorted(parts.blocks.items()):
            with archive.open(zipfile.ZipInfo(path, _EPOCH), "w") as file:
                file.writelines(block.pieces())
    return folder | {f"{VENDOR}.{view.name}.{view.version}.pack": packed.getvalue()}


def _under_src(parts: Parts) -> Contents:
    return {f"src/{path}": content for path, content in parts.code.items()} | parts.rest


def _by_pragma(parts: Parts) -> Parts:
    code = {
        path: PRAGMA + content if path in parts.view.sources else content
        for path, content in parts.code.items()
    }
    return replace(parts, code=code)


def _text(template: str, parts: Parts) -> bytes:
    return render(f"package/{template}", package=parts.view).encode()


KINDS: dict[str, Callable[[Parts], Contents]] = {
    "zephyr": _zephyr,
    "esp-idf": _esp_idf,
    "platformio": _platformio,
    "arduino": _arduino,
    "cmsis-pack": _cmsis_pack,
}
NAMES = ("flat", *KINDS)
"""What `--package` takes; the flat folder is a CMake package too."""
