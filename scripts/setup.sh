#!/bin/sh
# Everything that a fresh machine needs: a Java runtime, a virtual environment, the locked packages.
set -eu
here=$(dirname "$0")
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Anabranch needs Python 3.11 or later; install it, or say which with: make PYTHON=/path/to/python3" >&2
    exit 1
fi

sh "$here/java.sh"

if [ ! -x "$VENV/bin/python" ]; then
    echo "Making $VENV ..."
    "$PYTHON" -m venv "$VENV" || {
        rm -rf "$VENV"
        echo "Python cannot make virtual environments; on Debian install it with: apt-get install python3-venv" >&2
        exit 1
    }
fi
echo "Installing the locked packages (PySpark is built from source, which takes a minute or two) ..."
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-data.lock
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
echo "Ready."
