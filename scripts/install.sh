#!/usr/bin/env bash
# install.sh [--tests]: installs the Debian packages of scripts/packages.txt that are missing, with --tests also those
# of scripts/packages-tests.txt. Needs root or sudo only if a package is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lists=("$here/packages.txt")
case "$*" in
  "") ;;
  --tests) lists+=("$here/packages-tests.txt") ;;
  *)
    echo "usage: install.sh [--tests]" >&2
    exit 2
    ;;
esac

mapfile -t wanted < <(sed 's/#.*//' "${lists[@]}" | awk 'NF {print $1}')
missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "error: this is not a Debian system; install by hand what is missing: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "error: packages are missing and neither root nor sudo is at hand; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing ${#missing[@]} packages: ${missing[*]}"
log=$(mktemp)
# Some packages would start a server that nobody asked for. Use Debian's policy file against that, unless the machine
# has one.
policy=/usr/sbin/policy-rc.d
own_policy=
clean_up() {
  rm -f "$log"
  [ -z "$own_policy" ] || "${as_root[@]}" rm -f "$policy"
}
trap clean_up EXIT
if [ ! -e "$policy" ]; then
  own_policy=1
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
fi
if ! { "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=500 update &&
       "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=500 install -y \
         --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -20 "$log" >&2
  echo "error: apt-get could not install the packages (its last lines are above); mend that and run this again" >&2
  exit 1
fi
