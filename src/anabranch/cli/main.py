"""The command `anabranch`."""

from __future__ import annotations

import sys

import click

from anabranch import __version__
from anabranch.cli.bench import bench
from anabranch.cli.branch import branch
from anabranch.cli.demo import demo
from anabranch.cli.lab import lab
from anabranch.cli.log import log
from anabranch.cli.maintain import maintain
from anabranch.cli.run import run
from anabranch.cli.show import print_error
from anabranch.cli.sql import sql
from anabranch.cli.streams import streams
from anabranch.cli.tail import tail
from anabranch.model.errors import AnabranchError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="anabranch")
def anabranch() -> None:
    """Continuous analytics on Spark over streams that are late, broken, corrected and replicated.

    Exit codes: 0 for success, 1 when a claim of a benchmark, an experiment or the demo does not hold, 2 for a mistake
    in what was asked.
    """


for command in (demo, sql, run, tail, streams, log, branch, maintain, lab, bench):
    anabranch.add_command(command)


def main() -> None:
    """Run the command; the user's mistakes end with exit code 2 and what to do."""
    try:
        anabranch()
    except AnabranchError as error:
        print_error(error)
        sys.exit(2)
