"""ApiVersions: which APIs and versions this server has."""

from __future__ import annotations

from seeklog.server.broker import Broker
from seeklog.server.request import HANDLERS, Request, announced_versions, handles
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey
from seeklog.wire.error_code import ErrorCode


@handles(ApiKey.API_VERSIONS)
def api_versions(broker: Broker, request: Request) -> messages.ApiVersionsResponse:
    return versions_response(ErrorCode.NONE)


def versions_response(error: ErrorCode) -> messages.ApiVersionsResponse:
    """Return what is announced; with an error, it also answers an ApiVersions request of an unknown version."""
    return messages.ApiVersionsResponse(
        error_code=error,
        api_keys=[
            messages.ApiVersionsResponse.ApiVersion(
                api_key=key, min_version=announced_versions(key)[0], max_version=announced_versions(key)[-1]
            )
            for key in sorted(HANDLERS)
        ],
    )
