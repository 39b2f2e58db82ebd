"""What it means: a slow, plain executor of every box, without Spark. The lab and the oracles use it."""
