#!/bin/sh
# Make an image with Debian's Python and pip, where no registry can be reached: from the package
# sources of this machine, which has to be a Debian, by root, with debootstrap and buildah.
#
#   build/debian_base.sh [IMAGE]        then: make images ARGS="--build-image IMAGE"
set -eu
image=${1:-localhost/debian-python}
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed -n 1p)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=python3,python3-pip "$suite" "$root" "$mirror"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
container=$(buildah from scratch)
buildah add --quiet "$container" "$root" /
buildah commit --quiet --rm "$container" "$image"
