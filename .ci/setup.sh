#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets a machine up: system packages first, then the virtual environment in .venv.
#
#     .ci/setup.sh demo    what `make demo` needs: a host compiler, the Cortex-M compiler, QEMU;
#                          where these cannot be installed, compiler and emulator from wheels
#     .ci/setup.sh test    and what the tests need: Linux cross compilers, Clang, linters
#     .ci/setup.sh docs    what `make docs` needs, beside what the demo needs
#
# Takes no time where everything is there, may be interrupted and run again, and is quiet unless
# something fails. PYTHON=python3.12 chooses the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

level=${1:-}
case $level in
    demo) extras=verify ;;
    test) extras=dev ;;
    docs) extras=docs ;;
    *)
        echo "usage: .ci/setup.sh demo|test|docs" >&2
        exit 2
        ;;
esac

log=build/setup.log
mkdir -p build
exec 9>build/.setup.lock
# Two `make` at once: the second waits, and then finds everything done.
if command -v flock >/dev/null; then flock 9; fi
: >"$log"

fail() {
    printf 'set-up: %s\n' "$@" >&2
    exit 3
}

quietly() { # what it is for people, then the command
    local what=$1
    shift
    echo "set-up: $what"
    if ! "$@" >>"$log" 2>&1 </dev/null; then
        tail -n 30 "$log" >&2
        fail "failed: $what" "the whole log is $log"
    fi
}

has_command() { command -v "$1" >/dev/null 2>&1; }

# A compiler answers with a path where it has the file, and with the bare name where it has not.
has_file() { [[ $("$1" -print-file-name="$2" 2>/dev/null) == /* ]]; }

has_header() { echo '#include <stdio.h>' | "$1" -E -x c - >/dev/null 2>&1; }

has_browser() { has_command chromium-headless-shell || has_command chromium; }

python_is_usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

makes_environments() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# --- system packages -------------------------------------------------------------------------

missing=()

need() { # package, then the check that says whether it is there
    local package=$1
    shift
    "$@" || missing+=("$package")
}

find_missing() {
    missing=()
    need python3 python_is_usable "$python"
    need python3-venv makes_environments "$python"
    need gcc has_command gcc
    need libc6-dev has_header gcc
    need gcc-arm-none-eabi has_command arm-none-eabi-gcc
    need libnewlib-arm-none-eabi has_file arm-none-eabi-gcc nano.specs
    need qemu-system-arm has_command qemu-system-arm
    [[ $level == test ]] || return 0
    need git has_command git
    need g++ has_command g++
    need cmake has_command cmake
    need clang has_command clang
    need cppcheck has_command cppcheck
    need qemu-user has_command qemu-aarch64
    need gcc-aarch64-linux-gnu has_command aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross has_file aarch64-linux-gnu-gcc libc.a
    need gcc-arm-linux-gnueabihf has_command arm-linux-gnueabihf-gcc
    need libc6-dev-armhf-cross has_file arm-linux-gnueabihf-gcc libc.a
    # Where the distribution has no such package, the tests that look at pages are skipped.
    if has_command apt-cache && apt-cache show chromium-headless-shell >/dev/null 2>&1; then
        need chromium-headless-shell has_browser
    fi
}

become_root() { # the prefix that runs a command as root, or nothing usable
    if [[ $EUID == 0 ]]; then
        echo env
    elif has_command sudo && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
        echo sudo
    fi
}

# Without apt packages the demo still runs: compiler and emulator are then wheels.
use_wheels() { # why
    [[ $level == demo ]] && python_is_usable "$python" && makes_environments "$python" || return
    echo "set-up: $1; going on with Python packages alone (missing: ${missing[*]})"
    extras=$extras,emulator
} 2>/dev/null

install_missing() {
    local root manual="apt-get install ${missing[*]}"
    root=$(become_root)
    if ! has_command apt-get; then
        use_wheels "there is no apt-get" && return
        fail "missing: ${missing[*]}" "install these with your package manager" \
            "(the names are Debian's), then run make again"
    fi
    if [[ ! $root ]]; then
        use_wheels "neither root nor sudo" && return
        fail "missing: ${missing[*]}" "neither root nor sudo; as root, run:" "    $manual"
    fi

    local apt=("$root" DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600)
    # An installation that was cut short leaves packages half configured.
    "$root" dpkg --configure -a >>"$log" 2>&1 </dev/null || true
    # A stale third-party source must not stop us; if the lists are really useless, install says so.
    "${apt[@]}" update >>"$log" 2>&1 </dev/null || true
    quietly "installing ${missing[*]}" "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"

    find_missing
    [[ ${#missing[@]} == 0 ]] || fail "still missing after installation: ${missing[*]}" \
        "(Python has to be 3.11 or newer; PYTHON=python3.12 chooses another one)"
}

# --- virtual environment -----------------------------------------------------------------------

venv_is_whole() { # it runs, and it was made in this folder
    [[ -x .venv/bin/python ]] && python_is_usable .venv/bin/python &&
        .venv/bin/python -c 'import pip' 2>/dev/null && grep -qsF "$PWD/.venv" .venv/bin/pip
}

# The tests' environment holds all that the demo's holds.
key=$(cat pyproject.toml .ci/setup.sh | sha256sum)

is_done() { # level, extras
    [[ $(cat ".venv/.setup-$1" 2>/dev/null) == "$key $2" ]] && venv_is_whole
}

environment_is_done() { is_done "$level" "$extras" || is_done test dev; }

make_environment() {
    local bytecode=--compile
    # Tests compile what they import. All of it would take a third of the installation.
    [[ $level != test ]] || bytecode=--no-compile
    if ! venv_is_whole; then
        rm -rf .venv
        quietly "creating .venv" "$python" -m venv .venv
    fi
    quietly "installing relax_aot and its Python dependencies into .venv" \
        .venv/bin/python -m pip install --disable-pip-version-check "$bytecode" --editable ".[$extras]"
    printf '%s\n' "$key $extras" >".venv/.setup-$level"
}

# Packages of Python are installed while those of the system are. If that fails, it may have needed
# one of those: it is done again behind them.
begin_environment() {
    set -m # a group of processes, which ends with this one
    (
        log=build/setup-python.log
        : >"$log"
        make_environment 2>/dev/null
    ) &
    early=$!
    set +m
    trap 'kill -- "-$early" 2>/dev/null || true' EXIT
}

# --- both --------------------------------------------------------------------------------------

python=${PYTHON:-python3}
early=
find_missing 2>/dev/null
if [[ ${#missing[@]} != 0 ]]; then
    if [[ $level == test ]] && ! environment_is_done && python_is_usable "$python" &&
        makes_environments "$python"; then
        begin_environment
    fi
    install_missing
    [[ ! $early ]] || wait "$early" || true
fi
environment_is_done || make_environment
