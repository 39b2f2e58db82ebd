#!/bin/sh
# Find a Java runtime of version 17 or later, or install Debian's where this machine allows it.
set -eu

version_of() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

good() {
    [ -n "$1" ] && command -v "$1" >/dev/null 2>&1 && [ "$(version_of "$1")" -ge 17 ] 2>/dev/null
}

if [ -n "${JAVA_HOME:-}" ]; then
    if good "$JAVA_HOME/bin/java"; then exit 0; fi
elif good java; then
    exit 0
fi

if [ -z "${JAVA_HOME:-}" ] && command -v apt-get >/dev/null 2>&1; then
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then as_root="sudo -n"; else as_root=no; fi
    fi
    if [ "$as_root" != no ]; then
        echo "Installing a Java runtime ..."
        # Newer releases have only a newer Java, under the other name.
        $as_root apt-get update -qq || true
        for package in openjdk-17-jre-headless default-jre-headless; do
            if $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" \
                >/dev/null 2>&1 && good java; then
                exit 0
            fi
        done
    fi
fi

echo "Anabranch needs a Java runtime of version 17 or later: install one (on Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME." >&2
exit 1
