"""Errors of object stores and web servers, each as one sentence with a remedy.

obstore has few error types; the status and the code of the server are in the message.
"""

import re

from daskkern.errors import split_query

INSTALL = "install daskkern[remote]"

_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_SAME = {"s3a": "s3", "azure": "az", "adl": "az", "abfs": "az", "abfss": "az"}
_NO_CREDENTIALS = (
    "169.254.169.254",
    "metadata.google.internal",
    "Account must be specified",
    "token request",
    "Missing AccessKeyId",
)
_NO_CONTAINER = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_NOT_REACHED = ("error sending request", "dns error", "Connection refused", "Cannot connect")
_TOO_SLOW = ("timed out", "Timeout", "TimedOut")
_BROKEN = ("request or response body error", "error decoding response body")


def sentence(error: BaseException, url: str) -> str:
    """Return what went wrong with `url`, and what to do about it, without secrets of the URL."""
    text = _without(str(error), url)
    said = " ".join(text.partition("Debug source")[0].split())
    scheme = url.partition("://")[0]
    scheme = _SAME.get(scheme, scheme)
    status = re.search(r"\b(40[0-9]|5[0-9][0-9]) [A-Z][A-Za-z ]+", text)
    tries = re.search(r"after (\d+) retries", text)
    often = "" if tries is None else f" after {int(tries[1]) + 1} tries"
    if isinstance(error, ImportError):
        return f"opening {url} needs a package that is not installed ({said}); {INSTALL}, or that package"
    if any(sign in text for sign in _NO_CREDENTIALS):
        return f"no credentials for {url} were found; set {_VARIABLES.get(scheme, 'them in the environment')}"
    if any(sign in text for sign in _NO_CONTAINER):
        return f"the bucket of {url} does not exist; check the name, or make the bucket"
    if _is_denied(error, text):
        code = re.search(r"<Code>(\w+)</Code>", text)
        why = f"{'403 Forbidden' if status is None else status[0].strip()}{'' if code is None else f', {code[1]}'}"
        return f"access to {url} was denied ({why}); check the credentials in the environment and what they allow"
    if any(sign in text for sign in _TOO_SLOW):
        return f"the server of {url} did not answer in time{often}; try again, or set DASKKERN_REMOTE_TIMEOUT (seconds)"
    if "Range request not supported" in text:
        return f"the server of {url} sends whole files only, and files are read in parts; copy the file to this machine"
    if any(sign in text for sign in _BROKEN):
        return f"the answer of the server of {url} broke off{often}; try again later"
    if any(sign in text for sign in _NOT_REACHED):
        place = re.search(r"https?://[^/\s]+", said)
        where = "the server" if place is None else place[0]
        return f"{url} is not reachable: {where} did not answer{often}; check the network{_endpoint(scheme)}"
    if status is not None and status[1].startswith("5"):
        return f"the server of {url} failed ({status[0].strip()}){often}; try again later"
    if "Unable to recognise URL" in text or isinstance(error, ValueError):
        return f"{url} cannot be opened ({said:.200}); give a local path or a URL such as s3://bucket/name"
    return f"{url} cannot be used ({type(error).__name__}: {said:.300}); check the address and try again"


def _without(text: str, url: str) -> str:
    """Return a text of a library without the user, the password, the query and the fragment of `url`."""
    rest = url.partition("://")[2]
    user, mark, _ = rest.partition("/")[0].rpartition("@")
    secrets = [user] * bool(mark) + user.split(":")[1:] + re.split(r"[?#]", split_query(url)[1])[1:]
    for secret in filter(None, secrets):
        text = text.replace(secret, "...")
    return text


def is_cut_short(error: BaseException) -> bool:
    """Return whether a response broke off for another reason than a timeout."""
    text = str(error)
    return any(sign in text for sign in _BROKEN) and not any(sign in text for sign in _TOO_SLOW)


def _is_denied(error: BaseException, text: str) -> bool:
    kinds = ("PermissionDeniedError", "UnauthenticatedError", "PermissionError")
    return type(error).__name__ in kinds or any(sign in text for sign in ("403 Forbidden", "401 Unauthorized"))


def _endpoint(scheme: str) -> str:
    return " and AWS_ENDPOINT_URL" if scheme == "s3" else " and the address"
