"""Continuous analytics on Spark over streams that are late, broken, corrected and replicated."""

from anabranch.api.engine import Engine, connect
from anabranch.api.stream import Stream
from anabranch.connectors.source import register
from anabranch.engine.subscribe import Change, Subscription
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunHeader, RunId

__all__ = ["AnabranchError", "Change", "Engine", "RunHeader", "RunId", "Stream", "Subscription", "connect", "register"]
__version__ = "0.1.0"
