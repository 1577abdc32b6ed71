#!/bin/sh
# Install packages.txt, unless the base has it already.
set -eu
packages=$(sed '/^#/d' "$(dirname "$0")/packages.txt")
# shellcheck disable=SC2086  # a list of words is meant
installed=$(dpkg-query -W -f '${db:Status-Abbrev}\n' $packages 2>/dev/null | grep -c '^ii' || true)
[ "$installed" -lt "$(echo "$packages" | wc -l)" ] || exit 0

# Debian's images name the snapshot that they were made of, in a comment before the
# mirror. The same base then means the same packages, tomorrow as well.
sources=/etc/apt/sources.list.d/debian.sources
sed -i -E '/^# https?:.*\/archive\//{s/^# /URIs: /;n;d}' "$sources"
export DEBIAN_FRONTEND=noninteractive
apt-get -o Acquire::Check-Valid-Until=false update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $packages
