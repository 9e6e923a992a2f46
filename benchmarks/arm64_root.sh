#!/usr/bin/env bash
# Makes the folder that ONNX Runtime for 64-bit Arm runs from, under QEMU's user emulation:
#
#     benchmarks/arm64_root.sh ROOT
#     qemu-aarch64 -cpu cortex-a76 -L ROOT ROOT/usr/bin/python3 -c 'import onnxruntime'
#
# It takes Debian's Python for arm64 and what that depends on, unpacked and never installed, and the aarch64 wheels of
# onnxruntime and numpy. Both come from where this machine's apt-get and pip take their packages; the lists of apt-get
# for arm64 are kept in ROOT.apt, apart from those of the machine. No root rights, no chroot, 190 MB, about a minute.
set -euo pipefail

# Later versions refuse to start where /proc/cpuinfo is that of another processor.
ONNXRUNTIME=onnxruntime==1.22.1

[ $# = 1 ] || { echo "usage: $0 ROOT" >&2; exit 2; }
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
    "$ONNXRUNTIME" numpy
mv "$partial" "$root"
rm -rf "$lists"
echo "made $root: $(du -sh "$root" | cut -f1)"
