"""Flights from New York: plans, departures, arrivals, cancellations."""
