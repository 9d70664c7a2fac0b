"""The event engine: delivery, failures, outages and quarantine."""
