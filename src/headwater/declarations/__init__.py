"""Declarations: decorators, definitions, registry and dependency graph."""
