#!/bin/sh
# Resolve the dependencies into requirements.lock, with hashes and without the name of any index.
set -eu
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check pip-tools
CUSTOM_COMPILE_COMMAND="make lock" "$tools/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --strip-extras \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
    --extra bench --extra connect --extra dev --extra examples --extra postgres --output-file requirements.lock pyproject.toml
