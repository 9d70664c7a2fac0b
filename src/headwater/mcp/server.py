"""The MCP server of a store: answers requests for tools and resources, and keeps no session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.caching import CacheHint
from mcp.shared.exceptions import MCPError

from headwater.core.logging import log
from headwater.errors import HeadwaterError, UnknownNameError
from headwater.errors.base import RequestError
from headwater.mcp.context_tools import context_tools
from headwater.mcp.resources import StoreResources
from headwater.mcp.results import call_result, failed_call, problem_text
from headwater.mcp.tool import StoreTool, check_encodable
from headwater.mcp.tools import StoreTools
from headwater.model.callers import Caller, current_caller
from headwater.model.problems import error_fields, rule_of
from headwater.store.feature_store import FeatureStore

NAME = "headwater"

_INSTRUCTIONS = (
    "Features are current facts about entities such as users; contexts are texts that are "
    "assembled from features and documents, and recorded. Call list_declarations for the names. "
    "Every result names in _meta how old and how fresh it is; say so if freshness is not "
    "'guaranteed'."
)
_SERVER_ERROR = 500
_LISTS_CHANGE_RARELY = CacheHint(ttl_ms=60_000, scope="private")

_Request = ServerRequestContext[Any]


def create_server(store: FeatureStore) -> Server[Any]:
    """Return the MCP server of a store; each request runs as the current caller."""
    requests = StoreRequests(store)
    return Server(
        NAME,
        version=version("headwater"),
        title="Headwater",
        description="Fresh features and verifiable contexts.",
        instructions=_INSTRUCTIONS,
        on_list_tools=requests.list_tools,
        on_call_tool=requests.call_tool,
        on_list_resources=requests.list_resources,
        on_list_resource_templates=requests.list_templates,
        on_read_resource=requests.read_resource,
        cache_hints={
            "tools/list": _LISTS_CHANGE_RARELY,
            "resources/templates/list": _LISTS_CHANGE_RARELY,
        },
        # No schema maps an argument to a header, so there is nothing to validate.
        get_tool_input_schema=lambda _: None,
    )


class StoreRequests:
    """The handlers of the server's requests."""

    def __init__(self, store: FeatureStore) -> None:
        tools = [*StoreTools(store).tools(), *context_tools(store)]
        self._tools = {tool.name: tool for tool in tools}
        self._listings = {tool.name: tool.listing() for tool in tools}
        self._resources = StoreResources(store)
        self._private = store.settings.record.is_private

    async def list_tools(
        self, _: _Request, __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """List the tools that the caller may call."""
        return types.ListToolsResult(tools=[self._listings[name] for name in self._allowed()])

    def _allowed(self) -> list[str]:
        caller = _caller()
        return [tool.name for tool in self._tools.values() if tool.is_for(caller)]

    async def call_tool(
        self, _: _Request, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Call a tool; an error becomes a result that the model reads."""
        tool = self._tools.get(params.name)
        if tool is None:
            unknown = UnknownNameError("tool", params.name, self._allowed())
            raise MCPError(types.INVALID_PARAMS, str(unknown))
        try:
            return call_result(await self._call(tool, params.arguments or {}))
        except Exception as error:  # noqa: BLE001 - the last handler: the model gets an answer
            self._log(error, tool.name)
            return failed_call(error)

    async def _call(self, tool: StoreTool, arguments: dict[str, Any]) -> Any:
        _caller().check(tool.scope)
        check_encodable(arguments)
        return await tool.call(arguments)

    async def list_resources(
        self, _: _Request, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """List a page of resources."""
        with self._protocol_errors("resources/list"):
            return await self._resources.list(_caller(), params.cursor if params else None)

    async def list_templates(
        self, _: _Request, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """List the templates of resources."""
        return self._resources.templates(_caller())

    async def read_resource(
        self, _: _Request, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read a resource."""
        with self._protocol_errors("resources/read"):
            return await self._resources.read(_caller(), params.uri)

    @contextmanager
    def _protocol_errors(self, method: str) -> Iterator[None]:
        """Turn errors into protocol errors, because only tools have results for errors."""
        try:
            yield
        except HeadwaterError as error:
            self._log(error, method)
            code = types.INTERNAL_ERROR if _is_fault(error) else types.INVALID_PARAMS
            raise MCPError(code, problem_text(error)) from error

    def _log(self, error: Exception, called: str) -> None:
        """Log an error of the server; if private, without the messages of user code."""
        if _is_fault(error):
            fields = error_fields(error, private=self._private)
            log.error("mcp request failed", called=called, **fields)


def _caller() -> Caller:
    """Return the caller that the transport admitted; without one, nothing is answered."""
    caller = current_caller()
    if caller is None:
        raise MCPError(types.INTERNAL_ERROR, "the transport admitted no caller")
    return caller


def _is_fault(error: Exception) -> bool:
    return not isinstance(error, RequestError) and rule_of(error).status >= _SERVER_ERROR
