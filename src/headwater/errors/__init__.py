"""Every error Headwater raises, as one tree.

HeadwaterError
├── DeclarationError            invalid declaration in a features file
│   ├── DuplicateNameError      two declarations share a name
│   ├── UnknownReferenceError   unknown name in a {reference} or an option
│   ├── CycleError              features depend on each other
│   ├── TemplateError           invalid template
│   │   └── FormatError         … its format does not fit the type of a value
│   ├── TypeChangedError        stored values do not fit the annotated type
│   ├── EntityChangedError      stored values belong to another entity than the declared one
│   ├── CodeChangedError        version was made with other code than the declared one
│   └── FeaturesFileError       features file missing, failing, or without exactly one store
├── ConfigError                 invalid or missing setting
│   ├── UnknownSettingError     unknown key in headwater.toml
│   ├── MissingExtraError       optional driver not installed
│   ├── MissingApiKeyError      provider of embeddings needs a key
│   ├── SigningKeyError         invalid signing key
│   └── IndexKeyChangedError    contexts were recorded with another record.index_key
├── InvalidInputError           invalid argument
│   ├── LooserOverrideError     option of one call is looser than its context allows
│   ├── IndexVersionGoneError   past version of an index is no longer kept
│   ├── TooManyChunksError      documents of a request have too many chunks
│   ├── FieldError              field of a request, or parameter of a context, is invalid
│   ├── DurationError           invalid duration
│   ├── EventError              invalid event
│   ├── QueryError              query that can never run
│   ├── FeatureValueError       value does not fit its feature's annotated type
│   ├── RecordValueError        value cannot be represented exactly in a record
│   ├── OutcomeError            outcome is incomplete or contradicts itself
│   ├── RecordDocumentError     invalid record document
│   ├── CohortError             cohort file is damaged, altered, or not signed by a known key
│   ├── RedactionError          nothing to redact at this pointer
│   ├── AmbiguousRefError       several contexts match this prefix of an id
│   ├── ReplayError             record withholds values that a replay needs
│   ├── ReplayWriteError        replayed function tried to write
│   ├── BackfillRefusedError    feature cannot be computed from past events
│   └── ErasedEntityError       value of an erased entity
├── NotFoundError               not found
│   ├── UnknownNameError        … among the declarations
│   ├── UnknownContextError     … among the recorded contexts
│   ├── UnknownOutcomeError     … among the outcomes of recorded contexts
│   ├── UnknownDocumentError    … among the documents of an index
│   ├── UnknownDeadLetterError  … among the dead letters
│   ├── UnknownGroupError       … among the consumer groups
│   └── UnknownEvaluationError  … among the cohorts of evaluations and their runs
├── CallerLimitError            request is outside of the limits of its API key
├── FeatureInUseError           feature is run by live workers
├── GroupInUseError             consumer group has live workers
├── FeatureFailedError          feature function failed
│   ├── FunctionRaisedError     … it raised an exception
│   ├── HandlerTimeoutError     … it timed out
│   └── HungHandlerError        … it was not called, because too many of its calls hang
├── TaskFailedError             task failed in another process
├── TooManyHungThreadsError     worker ended because too many of its threads hang
├── RetrieverFailedError        retriever function failed
│   └── RetrieverTimeoutError   … it timed out
├── ContextFailedError          context function failed
│   └── ContextTimeoutError     … it timed out
├── EmbeddingError              texts could not be turned into vectors
├── TokenCountError             provider did not count the tokens of a request
├── FreshnessSLAError           context does not meet its freshness requirement
├── RecordingError              required record could not be stored
├── TokenBudgetError            required items exceed the token budget
├── CommitError                 batch was not committed and will be read again
│   ├── LeaseLostError          another worker holds the partition
│   ├── VersionConflictError    entity changed while the batch ran
│   └── ErasedMeanwhileError    entity was erased before the write
├── EventConflictError          event id already accepted with other content, or entity erased
├── IndexMismatchError          index was built with another embedder than the declared one
├── RerankFailedError           re-ranking function failed
├── ImmutableRecordError        different record already stored under this id
├── DamagedRecordError          stored record is unreadable
├── SignatureError              record cannot be signed, or its signature cannot be read
├── RemoteError                 call over HTTP failed
│   ├── ServerUnreachableError  … no server answers at the URL
│   ├── ConnectionLostError     … connection ended before the result arrived
│   ├── UnexpectedResponseError  … response of something else than this version of Headwater
│   ├── AccessDeniedError       … key missing, wrong or without the scope
│   ├── RateLimitedError        … rate limit exceeded
│   ├── OverloadedError         … server has no capacity at present
│   └── RequestRefusedError     … request refused for another reason
└── BackendError                store unusable
    ├── HomeError               embedded store: read-only, full, corrupt, or another version
    ├── BackendUnavailableError  server unreachable, or unable to serve at present
    ├── SchemaError             Postgres tables missing or of another version
    ├── LakeAheadError          the newest rows are an older copy than the lake
    ├── StoreMismatchError      Redis and Postgres hold different stores, or an older copy
    ├── StoreLostError          store lost its data, so every value is missing
    └── ClosedError             store closed, or opened before a fork
"""

from headwater.errors.base import ErrorResponse as ErrorResponse
from headwater.errors.base import HeadwaterError as HeadwaterError
from headwater.errors.declarations import CodeChangedError as CodeChangedError
from headwater.errors.declarations import ConfigError as ConfigError
from headwater.errors.declarations import CycleError as CycleError
from headwater.errors.declarations import DeclarationError as DeclarationError
from headwater.errors.declarations import DuplicateNameError as DuplicateNameError
from headwater.errors.declarations import EntityChangedError as EntityChangedError
from headwater.errors.declarations import FeaturesFileError as FeaturesFileError
from headwater.errors.declarations import FormatError as FormatError
from headwater.errors.declarations import IndexKeyChangedError as IndexKeyChangedError
from headwater.errors.declarations import MissingApiKeyError as MissingApiKeyError
from headwater.errors.declarations import MissingExtraError as MissingExtraError
from headwater.errors.declarations import SigningKeyError as SigningKeyError
from headwater.errors.declarations import TemplateError as TemplateError
from headwater.errors.declarations import TypeChangedError as TypeChangedError
from headwater.errors.declarations import UnknownReferenceError as UnknownReferenceError
from headwater.errors.declarations import UnknownSettingError as UnknownSettingError
from headwater.errors.functions import ContextFailedError as ContextFailedError
from headwater.errors.functions import ContextTimeoutError as ContextTimeoutError
from headwater.errors.functions import EmbeddingError as EmbeddingError
from headwater.errors.functions import FeatureFailedError as FeatureFailedError
from headwater.errors.functions import FreshnessSLAError as FreshnessSLAError
from headwater.errors.functions import FunctionRaisedError as FunctionRaisedError
from headwater.errors.functions import HandlerTimeoutError as HandlerTimeoutError
from headwater.errors.functions import HungHandlerError as HungHandlerError
from headwater.errors.functions import RecordingError as RecordingError
from headwater.errors.functions import RerankFailedError as RerankFailedError
from headwater.errors.functions import RetrieverFailedError as RetrieverFailedError
from headwater.errors.functions import RetrieverTimeoutError as RetrieverTimeoutError
from headwater.errors.functions import TaskFailedError as TaskFailedError
from headwater.errors.functions import TokenBudgetError as TokenBudgetError
from headwater.errors.functions import TokenCountError as TokenCountError
from headwater.errors.functions import TooManyHungThreadsError as TooManyHungThreadsError
from headwater.errors.inputs import AmbiguousRefError as AmbiguousRefError
from headwater.errors.inputs import BackfillRefusedError as BackfillRefusedError
from headwater.errors.inputs import CallerLimitError as CallerLimitError
from headwater.errors.inputs import CohortError as CohortError
from headwater.errors.inputs import DurationError as DurationError
from headwater.errors.inputs import EventError as EventError
from headwater.errors.inputs import FeatureInUseError as FeatureInUseError
from headwater.errors.inputs import FeatureValueError as FeatureValueError
from headwater.errors.inputs import FieldError as FieldError
from headwater.errors.inputs import GroupInUseError as GroupInUseError
from headwater.errors.inputs import IndexVersionGoneError as IndexVersionGoneError
from headwater.errors.inputs import InvalidInputError as InvalidInputError
from headwater.errors.inputs import LooserOverrideError as LooserOverrideError
from headwater.errors.inputs import NotFoundError as NotFoundError
from headwater.errors.inputs import OutcomeError as OutcomeError
from headwater.errors.inputs import QueryError as QueryError
from headwater.errors.inputs import RecordDocumentError as RecordDocumentError
from headwater.errors.inputs import RecordValueError as RecordValueError
from headwater.errors.inputs import RedactionError as RedactionError
from headwater.errors.inputs import ReplayError as ReplayError
from headwater.errors.inputs import ReplayWriteError as ReplayWriteError
from headwater.errors.inputs import TooManyChunksError as TooManyChunksError
from headwater.errors.inputs import UnknownContextError as UnknownContextError
from headwater.errors.inputs import UnknownDeadLetterError as UnknownDeadLetterError
from headwater.errors.inputs import UnknownDocumentError as UnknownDocumentError
from headwater.errors.inputs import UnknownEvaluationError as UnknownEvaluationError
from headwater.errors.inputs import UnknownGroupError as UnknownGroupError
from headwater.errors.inputs import UnknownNameError as UnknownNameError
from headwater.errors.inputs import UnknownOutcomeError as UnknownOutcomeError
from headwater.errors.remote import AccessDeniedError as AccessDeniedError
from headwater.errors.remote import ConnectionLostError as ConnectionLostError
from headwater.errors.remote import OverloadedError as OverloadedError
from headwater.errors.remote import RateLimitedError as RateLimitedError
from headwater.errors.remote import RemoteError as RemoteError
from headwater.errors.remote import RequestRefusedError as RequestRefusedError
from headwater.errors.remote import ServerUnreachableError as ServerUnreachableError
from headwater.errors.remote import UnexpectedResponseError as UnexpectedResponseError
from headwater.errors.storage import BackendError as BackendError
from headwater.errors.storage import BackendUnavailableError as BackendUnavailableError
from headwater.errors.storage import ClosedError as ClosedError
from headwater.errors.storage import CommitError as CommitError
from headwater.errors.storage import DamagedRecordError as DamagedRecordError
from headwater.errors.storage import ErasedEntityError as ErasedEntityError
from headwater.errors.storage import ErasedMeanwhileError as ErasedMeanwhileError
from headwater.errors.storage import EventConflict as EventConflict
from headwater.errors.storage import EventConflictError as EventConflictError
from headwater.errors.storage import HomeError as HomeError
from headwater.errors.storage import ImmutableRecordError as ImmutableRecordError
from headwater.errors.storage import IndexMismatchError as IndexMismatchError
from headwater.errors.storage import LakeAheadError as LakeAheadError
from headwater.errors.storage import LeaseLostError as LeaseLostError
from headwater.errors.storage import SchemaError as SchemaError
from headwater.errors.storage import SignatureError as SignatureError
from headwater.errors.storage import StoreLostError as StoreLostError
from headwater.errors.storage import StoreMismatchError as StoreMismatchError
from headwater.errors.storage import VersionConflictError as VersionConflictError

for _error in tuple(globals().values()):
    if isinstance(_error, type):
        _error.__module__ = __name__  # tracebacks name the public module
del _error
