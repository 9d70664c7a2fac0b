"""The tables of the reference pages, generated from the code."""
