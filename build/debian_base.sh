#!/bin/sh
# Make an image with Debian's Python and pip where no registry can be reached. It uses the package
# sources of this machine, which must run Debian, and needs root, debootstrap and buildah.
#
#   build/debian_base.sh [IMAGE [SUITE [ARCHITECTURE]]]
#   make images ARGS="--build-image IMAGE [--platform linux/ARCHITECTURE]"
#
# SUITE defaults to this machine's: bookworm has Python 3.11, trixie 3.13. So does ARCHITECTURE;
# another one, such as arm64, needs qemu-user-static.
set -eu
image=${1:-localhost/debian-python}
suite=${2:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
architecture=${3:-$(dpkg --print-architecture)}
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed -n 1p)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --arch="$architecture" --variant=minbase --include=python3,python3-pip "$suite" "$root" "$mirror"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
container=$(buildah from --arch "$architecture" scratch)
buildah add --quiet "$container" "$root" /
buildah commit --quiet --rm "$container" "$image"
