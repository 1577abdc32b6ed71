#!/bin/sh
# Put Python packages of constraints.txt into a folder: libraries.sh FOLDER NAME...
# From images/wheels where they have been laid out, else from the package index.
set -eu
cd "$(dirname "$0")/../.."
folder=$1
shift
[ $# -gt 0 ] || exit 0
offline=
[ ! -d images/wheels ] || offline="--no-index --find-links images/wheels"
# shellcheck disable=SC2086  # a list of words is meant
python3 -m pip install --quiet --no-compile --no-cache-dir --only-binary :all: \
    --disable-pip-version-check --root-user-action ignore \
    --constraint constraints.txt --target "$folder" $offline "$@"
rm -rf "$folder/bin"
