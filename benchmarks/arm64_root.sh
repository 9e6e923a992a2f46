#!/usr/bin/env bash
# Makes the folder that ONNX Runtime for 64-bit Arm runs from, under QEMU's user emulation:
#
#     benchmarks/arm64_root.sh [--tvm | --eqfuse] ROOT
#     qemu-aarch64 -cpu cortex-a76 -L ROOT ROOT/usr/bin/python3 -c 'import onnxruntime'
#
# With --tvm it has TVM's runtime too, and ROOT/usr/bin/python, which runs its Python under QEMU: a device to tune on.
#
#     ROOT/usr/bin/python -m tvm.exec.rpc_server --tracker HOST:PORT --key KEY
#
# With --eqfuse it has this checkout and what `eqfuse optimize` needs, and ROOT/usr/bin/python: a host that is not x86-64.
#
#     ROOT/usr/bin/python -m eqfuse optimize MODEL -o OUT
#
# It takes Debian's Python for arm64 and what that depends on, unpacked and never installed, and the aarch64 wheels of
# onnxruntime and numpy. Both come from where this machine's apt-get and pip take their packages; the lists of apt-get
# for arm64 are kept in ROOT.apt, apart from those of the machine. No root rights, no chroot, 190 MB (240 MB with TVM,
# 830 MB with eqfuse), one minute or two.
set -euo pipefail

# Later versions refuse to start where /proc/cpuinfo is that of another processor.
ONNXRUNTIME=onnxruntime==1.22.1

packages=("$ONNXRUNTIME" numpy)
tvm=
eqfuse=
if [ "${1-}" = --eqfuse ]; then
    eqfuse=yes
    shift
    # The list of docs/installation.md: without TVM, and without what only egglog's notebooks need.
    packages+=(archspec 'egglog>=13.2,<13.3' highspy ml_dtypes msgspec onnx onnx-ir rustworkx scipy shtab z3-solver \
        protobuf typing-extensions sympy mpmath flatbuffers packaging cloudpickle)
elif [ "${1-}" = --tvm ]; then
    tvm=yes
    shift
    # Both ends of a session have to be of the same version: the one that eqfuse requires.
    mapfile -t required < <(grep -o 'apache-tvm[a-z-]*==[^"]*' "$(dirname "$0")/../pyproject.toml")
    packages+=("${required[@]}" cloudpickle ml_dtypes psutil typing_extensions)
fi
[ $# = 1 ] || { echo "usage: $0 [--tvm | --eqfuse] ROOT" >&2; exit 2; }
[ ! -e "$1" ] || { echo "$0: $1 exists; name a new folder, or remove it" >&2; exit 2; }
for tool in apt-get dpkg-deb python3; do
    command -v "$tool" >/dev/null || { echo "$0: $tool: not found; this needs Debian or Ubuntu" >&2; exit 1; }
done

root=$(realpath -m "$1")
lists=$root.apt
partial=$root.partial
rm -rf "$partial"
mkdir -p "$partial" "$lists"/{state/lists/partial,cache/archives/partial}
: >"$lists/status"

apt_arm64() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false \
        -o APT::Sandbox::User="$(id -un)" -o Dir::State="$lists/state" -o Dir::State::status="$lists/status" \
        -o Dir::Cache="$lists/cache" -o Debug::NoLocking=true "$@"
}

apt_arm64 update
apt_arm64 install --yes --download-only python3 libstdc++6
for package in "$lists"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$partial"
done

version=$(readlink "$partial/usr/bin/python3")
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$partial/usr/lib/python3/dist-packages" \
    --only-binary :all: --python-version "${version#python}" --implementation cp \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 \
    "${packages[@]}"

# TVM's RPC server and eqfuse start processes by the path of their Python, so that has to be a program for this machine.
# It does not see what PYTHONPATH has for this machine's processor.
add_python() {
    cat >"$partial/usr/bin/python" <<'END'
#!/bin/sh
python=$(realpath "$0")
root=${python%/usr/bin/python}
unset PYTHONHOME PYTHONPATH
exec qemu-aarch64 -cpu cortex-a76 -L "$root" -0 "$python" "$root/usr/bin/python3" "$@"
END
    chmod +x "$partial/usr/bin/python"
}

if [ -n "$tvm" ]; then
    add_python
    rm -r "$partial"/usr/lib/python3/dist-packages/tvm/{3rdparty,lib/libtvm_compiler.so}  # 240 MB; the server compiles nothing
elif [ -n "$eqfuse" ]; then
    add_python
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
        --target "$partial/usr/lib/python3/dist-packages" "$(dirname "$0")/.."
fi
mv "$partial" "$root"
rm -rf "$lists"
echo "made $root: $(du -sh "$root" | cut -f1)"
