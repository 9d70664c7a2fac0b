"""Requests and responses: typed routes, parsing, problems and the OpenAPI document."""
