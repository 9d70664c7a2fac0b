"""The verbs of a store, each declared once for callers in the process and over HTTP."""
