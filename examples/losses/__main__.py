"""`python -m examples.losses`: ten years of insurers' losses, and how each year's answer was corrected."""

import tempfile

from rich.console import Console

import anabranch as ab
from examples.losses.live import main

with tempfile.TemporaryDirectory() as place, ab.connect(place) as engine:
    main(engine, Console())
