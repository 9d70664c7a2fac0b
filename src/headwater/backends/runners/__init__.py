"""Runners: where tasks run, by the settings or by the arguments of a call."""
