"""The MCP server: tools and resources over a store, for models and their hosts.

``tools`` and ``context_tools`` are what a model may call, ``resources`` what a host may read,
``server`` answers requests with them, and ``transports`` serves stdio and streamable HTTP.
"""
