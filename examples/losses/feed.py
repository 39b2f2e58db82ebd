"""The feed: what insurers reported of each accident year at the end of every year from 1988 to 1997.

The data are schedule P of the American insurers' annual statements, as the package `chainladder` has them. Only the
file is read, so nothing of the package is imported.
"""

from collections.abc import Iterator
from importlib.metadata import files

import pandas as pd

YEARS = range(1988, 1998)
LINES = {
    "comauto": "commercial car",
    "medmal": "medical malpractice",
    "othliab": "other liability",
    "ppauto": "private car",
    "prodliab": "product liability",
    "wkcomp": "workers' compensation",
}


def reports() -> Iterator[tuple[int, pd.DataFrame]]:
    """What became known with each year: the latest figures of every accident year so far."""
    read = pd.read_csv(_file("chainladder", "clrd.csv"))
    rows = pd.DataFrame(
        {
            "company": read["GRCODE"],
            "line": read["LOB"].map(LINES),
            "accident_year": read["AccidentYear"],
            "incurred": read["IncurLoss"],
            "paid": read["CumPaidLoss"],
            "premium": read["EarnedPremNet"],
            "ts": pd.to_datetime(read["AccidentYear"].astype(str) + "-12-31", utc=True),
        }
    )
    for year in YEARS:
        yield year, rows[read["DevelopmentYear"] == year]


def _file(package: str, name: str) -> str:
    (found,) = [path for path in files(package) or [] if path.name == name]
    return str(found.locate())
