"""Comparing resourceVersions. Follows apimachinery pkg/util/resourceversion/resourceversion.go."""


class InvalidResourceVersionError(ValueError):
    """A resourceVersion is no positive decimal number without leading zeros."""


def compare_resource_versions(a: str, b: str) -> int:
    """Compare two versions of objects of the same resource: -1 if `a` is older than `b`, 0 if equal, 1 if newer.

    They are decimal numbers of any length. `0` is not comparable: in requests it stands for any version.

    Raises:
        InvalidResourceVersionError: one of them cannot be compared.
    """
    for version in (a, b):
        if not (version.isascii() and version.isdigit()) or version.startswith("0"):
            raise InvalidResourceVersionError(f"resource version is not well formed: {version}")
    left, right = (len(a), a), (len(b), b)
    return (left > right) - (left < right)
