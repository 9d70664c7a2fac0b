"""The names of the attributes of spans, in one table.

Where OpenTelemetry has a semantic convention (generative AI, messaging, HTTP, errors), its name is
used; the conventions of generative AI are still in development, so a change of them is one here.
"""

from __future__ import annotations

# Generative AI
GEN_AI_OPERATION = "gen_ai.operation.name"
GEN_AI_PROVIDER = "gen_ai.provider.name"
GEN_AI_MODEL = "gen_ai.request.model"
GEN_AI_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_DIMENSIONS = "gen_ai.embeddings.dimension.count"
GEN_AI_DATA_SOURCE = "gen_ai.data_source.id"
GEN_AI_TOP_K = "gen_ai.request.top_k"

# Messaging
MESSAGING_SYSTEM = "messaging.system"
MESSAGING_OPERATION = "messaging.operation.name"
MESSAGING_OPERATION_TYPE = "messaging.operation.type"
MESSAGING_MESSAGE_ID = "messaging.message.id"
MESSAGING_BATCH_COUNT = "messaging.batch.message_count"
MESSAGING_PARTITION = "messaging.destination.partition.id"

# HTTP
HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"

ERROR_TYPE = "error.type"

# Headwater
EVENT_TYPE = "headwater.event.type"
FEATURE = "headwater.feature.name"
FEATURES_UPDATED = "headwater.features.updated"
DEAD_LETTERS = "headwater.dead_letters"
RETRIES = "headwater.retries"
ENTITY = "headwater.entity.name"
ENTITY_COUNT = "headwater.entity.count"
CONTEXT = "headwater.context.name"
CONTEXT_ID = "headwater.context.id"
RECORD_HASH = "headwater.record.hash"
IS_RECORDED = "headwater.context.recorded"
FRESHNESS = "headwater.freshness.status"
STALEST_MS = "headwater.freshness.stalest_ms"
VIOLATIONS = "headwater.freshness.violations"
ITEMS = "headwater.items"
ITEMS_DROPPED = "headwater.items.dropped"
RETRIEVER = "headwater.retriever.name"
RESULTS = "headwater.results"
SEARCH_MODE = "headwater.search.mode"
TEXTS = "headwater.texts"
SERIES = "headwater.feature.series"

# Content: exported only if `telemetry.content` asks for it.
ENTITY_ID = "headwater.entity.id"
EVENT_PAYLOAD = "headwater.event.payload"
CONTEXT_TEXT = "headwater.context.text"
CONTEXT_INPUTS = "headwater.context.inputs"
QUERY = "gen_ai.retrieval.query.text"
DOCUMENTS = "gen_ai.retrieval.documents"
