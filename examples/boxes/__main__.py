"""All boxes, one after another, in one Spark session."""

import tempfile
from importlib import import_module

import anabranch as ab
from examples.boxes import BOXES

with tempfile.TemporaryDirectory() as place, ab.connect(f"{place}/warm") as first:
    first.spark  # noqa: B018 - started here, it is shared by all that connect meanwhile
    for box in BOXES:
        print(f"\n--- examples/boxes/{box}.py")
        with ab.connect(f"{place}/{box}") as engine:
            import_module(f"examples.boxes.{box}").main(engine)
