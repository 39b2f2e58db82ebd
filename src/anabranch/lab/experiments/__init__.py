"""The experiments of the paper: each prints its figures beside ours, and claims that hold or do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.lab.experiments import figures_chain, figures_protocol, figures_single, scale, tables
from anabranch.model.report import Report

EXPERIMENTS: Mapping[str, Callable[[], Report]] = {
    "fig-7": figures_protocol.fig_7,
    "fig-8": figures_protocol.fig_8,
    "fig-11a": figures_single.fig_11a,
    "fig-11b": figures_single.fig_11b,
    "table-3": tables.table_3,
    "fig-13": figures_single.fig_13,
    "fig-15": figures_chain.fig_15,
    "fig-16": figures_chain.fig_16,
    "fig-18": figures_chain.fig_18,
    "fig-19": figures_chain.fig_19,
    "fig-20": figures_chain.fig_20,
    "table-4": tables.table_4,
    "table-5": tables.table_5,
    "switch-time": figures_single.switch_time,
    "scale": scale.scale,
}
