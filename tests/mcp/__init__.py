"""Tests of the MCP server, with the client of its SDK."""
