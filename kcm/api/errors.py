"""What can go wrong between kcm and the API server, mapped once at the client's border.

Follows apimachinery pkg/api/errors/errors.go: a refusal carries the server's Status, and callers tell refusals apart with
the predicates here, never by text.
"""

from collections.abc import Iterable, Sequence

import msgspec

#: Cause in a refusal's details when the namespace is being deleted (core/v1 NamespaceTerminatingCause).
NAMESPACE_TERMINATING = "NamespaceTerminating"
#: Cause when a resourceVersion lies in the server's future (metav1 CauseTypeResourceVersionTooLarge).
RESOURCE_VERSION_TOO_LARGE = "ResourceVersionTooLarge"

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_KNOWN_REASONS = frozenset(_REASONS.values()) | {"AlreadyExists", "Expired", "ServerTimeout", "StoreReadError"}


class ConfigError(Exception):
    """The client configuration is missing or unusable; the text says what was tried and what to do."""


class TransportError(Exception):
    """No answer came, or it broke off: refused, reset, timed out, or TLS failed."""

    def __init__(
        self, message: str, *, connection_refused: bool = False, connection_lost: bool = False, answered: bool = False
    ) -> None:
        super().__init__(message)
        #: Nobody listens at the server's address.
        self.connection_refused = connection_refused
        #: An open connection was reset or closed before the answer began.
        self.connection_lost = connection_lost
        #: The answer had begun when the connection broke.
        self.answered = answered


class FencedError(BaseException):
    """A write was not sent because the Lease was no longer surely held; the process must end.

    No `except Exception` may take it for the failure of one request, hence the base class.
    """


class StatusCause(msgspec.Struct, frozen=True):
    """One detail of a refusal."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The machine-readable part of a refusal."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """meta/v1 Status, the body of every refusal."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class StatusError(Exception):
    """The server refused; `str()` is its message, as with the reference's errors."""

    def __init__(self, status: Status, *, retry_after: float | None = None) -> None:
        super().__init__(status.message)
        self.status = status
        #: Seconds to wait that the answer asked for in a Retry-After header, if it had one.
        self.retry_after = retry_after

    @property
    def code(self) -> int:
        """The HTTP status code."""
        return self.status.code

    @property
    def reason(self) -> str:
        """The reason given, or the one that the code stands for."""
        return self.status.reason

    def is_reason(self, reason: str, code: int) -> bool:
        """Whether the refusal has this reason, or an unknown one with this code (errors.go:ReasonAndCodeForError)."""
        return self.reason == reason or (self.reason not in _KNOWN_REASONS and self.code == code)

    def has_cause(self, cause: str) -> bool:
        """Whether the details name a cause (errors.go:HasStatusCause)."""
        details = self.status.details
        return details is not None and any(entry.reason == cause for entry in details.causes)


def status_error(code: int, body: bytes, *, verb: str, path: str, retry_after: float | None = None) -> StatusError:
    """Make the error for an answer outside 2xx, whether or not its body is a Status (errors.go:NewGenericServerResponse)."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, msgspec.ValidationError):
        status = Status()
    if not status.message:
        text = body.decode(errors="replace").strip()[:2048]
        message = f"the server answered {code} to {verb} {path}" + (f": {text}" if text else "")
        status = Status(message=message, reason=_REASONS.get(code, "Unknown"), code=code, details=status.details)
    elif not status.code:
        status = Status(message=status.message, reason=status.reason, code=code, details=status.details)
    return StatusError(status, retry_after=retry_after)


def is_not_found(error: BaseException | None) -> bool:
    """Whether the object is not there."""
    return isinstance(error, StatusError) and error.is_reason("NotFound", 404)


def is_invalid(error: BaseException | None) -> bool:
    """Whether validation refused the object."""
    return isinstance(error, StatusError) and error.is_reason("Invalid", 422)


def is_conflict(error: BaseException | None) -> bool:
    """Whether the object changed since it was read."""
    return isinstance(error, StatusError) and error.is_reason("Conflict", 409)


def is_already_exists(error: BaseException | None) -> bool:
    """Whether an object of that name is there already."""
    return isinstance(error, StatusError) and error.reason == "AlreadyExists"


def is_too_many_requests(error: BaseException | None) -> bool:
    """Whether the server asks to slow down."""
    return isinstance(error, StatusError) and (error.code == 429 or error.reason == "TooManyRequests")


def is_resource_expired(error: BaseException | None) -> bool:
    """Whether a resourceVersion is too old to list or watch from."""
    return isinstance(error, StatusError) and (error.code == 410 or error.reason in {"Expired", "Gone"})


def is_too_large_resource_version(error: BaseException | None) -> bool:
    """Whether a resourceVersion lies in the server's future (reflector.go:isTooLargeResourceVersionError)."""
    if not isinstance(error, StatusError):
        return False
    if error.has_cause(RESOURCE_VERSION_TOO_LARGE):
        return True
    details = error.status.details
    texts = [cause.message for cause in details.causes] if details else []
    return error.reason == "Timeout" and "Too large resource version" in " ".join([*texts, str(error)])


def is_namespace_terminating(error: BaseException | None) -> bool:
    """Whether a creation was refused because its namespace is being deleted."""
    return isinstance(error, StatusError) and error.has_cause(NAMESPACE_TERMINATING)


class AggregateError(Exception):
    """Several errors as one: the bare text of a single one, else `[a, b]` without repeats (util/errors)."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        texts = list(dict.fromkeys(str(error) for error in errors))
        super().__init__(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        self.errors = tuple(errors)


def raise_all(errors: Iterable[Exception]) -> None:
    """Raise what was collected as one error, or return when there is none.

    Raises:
        AggregateError: there is at least one error.
    """
    if collected := list(errors):
        raise AggregateError(collected) from collected[0]
