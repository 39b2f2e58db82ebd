"""Finding a Java runtime before Spark fails to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from anabranch.model.errors import AnabranchError

LEAST_VERSION = 17


def require_java() -> None:
    """Fail with one clear sentence if Spark could not start here."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        raise _missing("none on the PATH" if home is None else f"JAVA_HOME={home}, which has no bin/java")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < LEAST_VERSION:
        raise _missing(f"{java}, version {version[1] if version else 'unknown'}")


def _missing(got: str) -> AnabranchError:
    return AnabranchError(
        "JAVA_MISSING",
        place="starting Spark",
        need=f"a Java runtime, version {LEAST_VERSION} or later",
        got=got,
        next_step="Install one (on Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME.",
    )
