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
GEN_AI_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_CACHE_WRITE = "gen_ai.usage.cache_write.input_tokens"
GEN_AI_REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
GEN_AI_RESPONSE_ID = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL = "gen_ai.response.model"
GEN_AI_FINISH_REASONS = "gen_ai.response.finish_reasons"
GEN_AI_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_VALUE = "gen_ai.evaluation.score.value"
GEN_AI_DIMENSIONS = "gen_ai.embeddings.dimension.count"
GEN_AI_DATA_SOURCE = "gen_ai.data_source.id"
GEN_AI_TOP_K = "gen_ai.retrieval.top_k"

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
OUTCOME_ID = "headwater.outcome.id"
OUTCOME_KIND = "headwater.outcome.kind"
OUTCOME_HASH = "headwater.outcome.hash"
OUTCOME_JUDGE = "headwater.outcome.judge"
OUTCOME_SOURCE = "headwater.outcome.source"
SCORE_KIND = "headwater.score.kind"
TOKENS_PREDICTED = "headwater.tokens.predicted"
COST_NANO_USD = "headwater.cost_nano_usd"
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
GEN_AI_OUTPUT_MESSAGES = "gen_ai.output.messages"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation"
SCORE_TEXT = "headwater.score.text"
SCORE_IDENTIFIER = "headwater.score.identifier"
USAGE_RAW = "headwater.usage.raw"
OUTCOME_ACTOR = "headwater.outcome.actor"
OUTCOME_SOURCE_ID = "headwater.outcome.source_id"
OUTCOME_LINKS = "headwater.outcome.links"
