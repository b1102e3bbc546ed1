#!/bin/sh
# What tern needs from the system: a C and C++ compiler, Python's headers and venv, cmocka for the C tests. As root on Debian what is missing is installed;
# otherwise the one line to run is printed. Usage: prerequisites.sh PYTHON
python="${1:-python3}"
missing=""
command -v gcc >/dev/null && command -v g++ >/dev/null || missing="$missing gcc g++"
command -v "$python" >/dev/null || missing="$missing python3"
if command -v "$python" >/dev/null; then
  "$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
  "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null ||
    missing="$missing python3-dev"
fi
[ -e /usr/include/cmocka.h ] || missing="$missing libcmocka-dev"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing$missing"
  (apt-get install -y --no-install-recommends $missing || { apt-get update && apt-get install -y --no-install-recommends $missing; }) >/dev/null && exit 0
fi
echo "tern needs$missing; on Debian run: sudo apt-get install -y$missing" >&2
exit 1
