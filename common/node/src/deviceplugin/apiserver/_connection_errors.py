"""Why a connection failed, in words that are the same each time."""

import re
from typing import Final

from urllib3.exceptions import HTTPError

_CONNECTION: Final = re.compile(r"^<?HTTPS?Connection\([^)]*\)( at 0x[0-9a-f]+>)?: ")


def reason_of(error: BaseException) -> str:
    """Return the root cause of an error of urllib3, which is at the end of a chain.

    It does not name the connection object, whose address in memory would make each message new.
    """
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return reason_of(reason)
    own = len(error.args) > 1 and isinstance(error, HTTPError)
    return _CONNECTION.sub("", str(error.args[-1] if own else error))
