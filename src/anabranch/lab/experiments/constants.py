"""The constants of the paper's experiments, each with the section that it comes from. They serve all experiments.

An experiment sets only what its caption varies.
"""

from __future__ import annotations

from anabranch.lab.network import LinkSpec
from anabranch.lab.simulation import SECOND as SECOND
from anabranch.protocol.dpc.node import Timing

MILLISECOND = SECOND // 1000

# 5.2, footnote 3: SUnions delay by 0.9 D instead of D, as a precaution.
PRECAUTION = 0.9
# 6.2, footnote 5: without tentative boundaries an SUnion waits for 300 ms before it processes a tentative bucket.
SETTLE = 300 * MILLISECOND
# 5.1: a keep-alive every 100 ms; once a failure is noticed, switching takes about 40 ms, of which all but the two
# messages is setting up the connection.
KEEP_ALIVE = 100 * MILLISECOND
SWITCH = 40 * MILLISECOND
# 2.2: network latency is small compared with X. The machines of section 5 share a local network.
LATENCY = 1 * MILLISECOND
# 6.1: the normal processing latency is below 300 ms. An input without boundaries for longer is failing; bucket and
# boundary interval of 100 ms keep the latency below that.
NORMAL = 300 * MILLISECOND
BUCKET = 100 * MILLISECOND
BOUNDARY = 100 * MILLISECOND
# Figs 12 and 14: three input streams.
STREAMS = 3
# 6.1 and footnote 4: a single node is given 4500 tuples a second and D = 3 s.
SINGLE_RATE = 4500
SINGLE_D = 3 * SECOND
# 6.2: a chain is given 500 tuples a second and D = 2 s for each node; 5.2: so is the node of Figs 10 and 11.
CHAIN_RATE = 500
CHAIN_D = 2 * SECOND
# 6.1: reconciling takes as long as D for a failure of around 8 s: the cost of a tuple follows.
COST = SINGLE_D / (8 * SINGLE_RATE)
# 6.3: X = 8 s for a chain of four; each SUnion gets 6.5 s of it, the rest is for queues.
BOUND = 8 * SECOND
FULL_D = 65 * SECOND // 10
# 7: a tuple about every 12 ms, 25,000 in five minutes, through one SUnion, with a boundary for each at 10 ms.
OVERHEAD_EVERY = 12 * MILLISECOND
OVERHEAD_TUPLES = 25_000
OVERHEAD_OTHER = 10 * MILLISECOND

# Not from the paper: how often a source sends what it has, and how long the world goes on before and after.
SEND_EVERY = 20 * MILLISECOND
BEFORE = 5 * SECOND
AFTER = 16 * SECOND

# A keep-alive is asked and answered within its period.
_PATIENCE = 4 * LATENCY
TIMING = Timing(keep_alive=KEEP_ALIVE - _PATIENCE, patience=_PATIENCE, stall=NORMAL, retry=KEEP_ALIVE, silence=BOUND)
LINK = LinkSpec(latency=LATENCY, set_up=SWITCH - 2 * LATENCY)
