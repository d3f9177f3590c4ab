"""pip's words, as pip 26 prints them, in ours."""

import pytest

from backends.environments.pip_errors import translated

ON = "Python 3.11 on linux-x86_64"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            (
                "ERROR: Could not find a version that satisfies the requirement nowhere==1 "
                "(from versions: none)",
                "ERROR: No matching distribution found for nowhere==1",
            ),
            f"no wheel of 'nowhere==1' for {ON} was found",
        ),
        (
            (
                "ERROR: Could not find a version that satisfies the requirement six==9 "
                "(from versions: 1.16.0, 1.17.0)",
            ),
            f"no version fits 'six==9' for {ON}; there are 1.16.0, 1.17.0",
        ),
        (
            (
                "WARNING: Retrying (Retry(total=0)) after connection broken by "
                "'NewConnectionError(...: [Errno 111] Connection refused)': /simple/six/",
                "ERROR: Could not find a version that satisfies the requirement six "
                "(from versions: none)",
            ),
            "the package index cannot be reached",
        ),
        (
            (
                "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
                "    six==1.17.0 from file:///six.whl:",
                "        Expected sha256 00",
                "             Got        11",
            ),
            "a package has another hash than it should: six==1.17.0 from file:///six.whl:; "
            "Expected sha256 00; Got 11",
        ),
        (
            (
                "ERROR: Cannot install a and b because these package versions have conflicting "
                "dependencies.",
                "    a 1 depends on c==1",
                "    b 1 depends on c==2",
            ),
            "the requirements contradict each other: a 1 depends on c==1; b 1 depends on c==2",
        ),
        (("OSError: [Errno 28] No space left on device",), "the disk is full"),
        (("Traceback", "ERROR: something else"), "pip failed: ERROR: something else"),
        ((), "pip failed: it said nothing"),
    ],
)
def test_why_pip_failed_is_told(lines: tuple[str, ...], told: str) -> None:
    assert translated(lines, ON).startswith(told)


def test_nothing_of_an_address_but_its_host_is_told() -> None:
    lines = (
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'ProtocolError('Connection "
        "aborted.')': /t0ken/simple/six/",
        "ERROR: HTTPSConnectionPool(host='packages', port=443): Max retries exceeded with url: "
        "/t0ken/simple/six/ (Caused by SSLError(1))",
        "ERROR: 404 for https://me:t0ken@packages:8443/t0ken/simple/six/?key=t0ken, said "
        "https://t0ken@packages",
    )
    for line in lines:
        assert "t0ken" not in translated((line,), ON)
    assert "https://packages:8443/…, said https://packages" in translated(lines[2:], ON)
