"""Which sources a server takes models from, going by what its operator allowed. Pure."""

from collections.abc import Sequence

from repository.sources.errors import BadSource
from repository.sources.url import BucketUrl, Source, parse


def admitted(text: str, allowed: Sequence[str] = ()) -> Source:
    """The source a URL names, if it may be asked for models; raises `BadSource`.

    With no prefix allowed, that is any public web server and the hub. A bucket is read with the
    server's own credentials, so it takes a prefix that allows it.
    """
    source = parse(text, allowed)
    if isinstance(source, BucketUrl) and not allowed:
        remedy = f"an operator can allow it with --import-allow={source.scheme}://{source.bucket}/"
        what = "is a bucket, read with the server's credentials"
        raise BadSource(f"'{source.text}' {what}; {remedy}")
    return source
