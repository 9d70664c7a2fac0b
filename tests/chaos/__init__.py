"""The production engine under attack, with real processes and real servers."""
