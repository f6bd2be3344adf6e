"""The address of a server: checked once, joined with paths, and shown without its secrets."""

import base64
import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

__all__ = ["BaseURL", "check_headers"]


def check_headers(argument: str, headers: Mapping[str, str]) -> dict[str, str]:
    """A checked copy with lower-case names. The values are never part of an error: they may be secrets.

    Raises:
        TypeError, ValueError: naming ``argument`` and the header.
    """
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{argument}[{name!r}] must be a string, not {type(value).__name__}")
        if not name or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{argument} must have names of letters, digits, '-' and '_', not {name!r}")
        if not value.isascii() or not (value.isprintable() or not value) or value != value.strip():
            raise ValueError(
                f"{argument}[{name!r}] must be printable ASCII without blanks around it; "
                "a line end read from a file is the usual cause"
            )
        checked[name.lower()] = value
    return checked


class BaseURL:
    """A checked base URL.

    Attributes:
        shown: for people; without user, password and query.
        host: lower case.
        is_loopback: whether the host is this machine, by its name or address.
        authorization: the header that the user and the password in the URL stand for, or the empty string.
        secrets: what may be one in the URL: the password, the values in the query.

    Raises:
        TypeError, ValueError: naming ``base_url``.
    """

    def __init__(self, base_url: str) -> None:
        if not isinstance(base_url, str):
            raise TypeError(f"base_url must be a string, not {type(base_url).__name__}")
        try:
            parts = urlsplit(base_url.strip())
            port = parts.port
        except ValueError as error:
            raise ValueError(f"base_url is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                "base_url must start with http:// or https:// and name a host, such as 'http://127.0.0.1:8000/v1'"
                + (f", not {base_url!r}" if "@" not in base_url else "")
            )
        if parts.fragment:
            raise ValueError("base_url must not have a fragment ('#…')")
        # user and password go into a header: clients log addresses
        place = parts.netloc.rpartition("@")[2]
        self._parts = parts._replace(path=parts.path.rstrip("/"), netloc=place)
        self.host = parts.hostname
        self.authorization = _basic(parts)
        self.secrets = [unquote(parts.password or ""), *(value for _, value in parse_qsl(parts.query))]
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.shown = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{self._parts.path}"
        self.is_loopback = _is_loopback(self.host)

    def join(self, path: str) -> str:
        """The address of ``path`` (with its leading slash) under this one; a query stays at the end."""
        joined: SplitResult = self._parts._replace(path=self._parts.path + path)
        return joined.geturl()

    def __repr__(self) -> str:
        return f"BaseURL({self.shown!r})"


def _basic(parts: SplitResult) -> str:
    if not parts.username:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
