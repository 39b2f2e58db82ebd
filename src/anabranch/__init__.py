"""Continuous analytics on Spark over streams that are late, broken, corrected and replicated."""

from anabranch.api.engine import Engine, connect
from anabranch.api.stream import Stream
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunHeader, RunId

__all__ = ["AnabranchError", "Engine", "RunHeader", "RunId", "Stream", "connect"]
__version__ = "0.1.0"
