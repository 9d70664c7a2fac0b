"""Passages of a help centre with queries and judgements, to measure how well searches rank."""
