"""Building blocks without domain knowledge: clock, codec, canonical JSON, durations, logging."""
