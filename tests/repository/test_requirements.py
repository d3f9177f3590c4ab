"""What a model's requirements.txt may say."""

import pytest

from repository.requirements import BadRequirements, read_requirements, requirements_digest

HASH = "--hash=sha256:" + "0" * 64


def test_names_versions_markers_and_hashes_are_read_and_comments_left_out() -> None:
    text = f"""
# what it needs
numpy==2.3.1  # the newest
Pillow[xmp, jpeg] >=11,<13 ; python_version >= "3.11"
six==1.17.0 \\
    {HASH} \\
    {HASH}
plain
nested (>1, <2);(os_name != 'nt' or "linux" in sys_platform)and python_version not in '3.1'
"""
    assert read_requirements(text.encode()) == (
        "numpy==2.3.1",
        'Pillow[xmp, jpeg] >=11,<13 ; python_version >= "3.11"',
        f"six==1.17.0 {HASH} {HASH}",
        "plain",
        "nested (>1, <2);(os_name != 'nt' or \"linux\" in sys_platform)and "
        "python_version not in '3.1'",
    )


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "line",
    ["a" + " " * 200_000 + "!", "a" + " " * 30_000 + "!", "a[b" + " ,b" * 5_000 + "!", "x" * 2000],
)
def test_a_long_line_is_refused_in_no_time(line: str) -> None:
    with pytest.raises(BadRequirements, match="line 1"):
        read_requirements(line.encode())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-e .", "an editable package is source code"),
        ("--editable=git+https://x/y", "an editable package is source code"),
        ("-r other.txt", "options are not taken"),
        ("--requirement=/etc/passwd", "options are not taken"),
        ("-c constraints.txt", "options are not taken"),
        ("--index-url https://evil.example/simple", "--environment-index"),
        ("--extra-index-url=https://evil.example", "options are not taken"),
        ("--find-links /tmp", "options are not taken"),
        ("--trusted-host evil.example", "options are not taken"),
        ("--no-binary :all:", "options are not taken"),
        ("six==1.17.0 --config-settings=x=y", "options are not taken"),
        ('six ; python_version > "3" --no-binary=six', "options are not taken"),
        ('six ; python_version > "3 --no-binary=six"', "options are not taken"),
        (f"six --no-binary=six {HASH}", "options are not taken"),
        ("six ; python_version", "that is no requirement"),
        ("six ; os_name == 'nt' and", "that is no requirement"),
        ("six ; os_name == 'nt')", "that is no requirement"),
        ("six ; os_name == 'nt' evil", "that is no requirement"),
        ("six ; os.system('x') == 'y'", "that is no requirement"),
        (f"six ; {'(' * 300}os_name == 'nt'{')' * 300}", "that is no requirement"),
        ("six.zip[x]", "that is no requirement"),
        ("six==1.tlz", "files and folders are not taken"),
        ("six==1.17.0 --index-url https://evil.example", "addresses are not taken"),
        ("git+https://evil.example/x.git", "addresses are not taken"),
        ("six @ https://evil.example/six.whl", "addresses are not taken"),
        ("six @ file:///etc/passwd", "addresses are not taken"),
        ("file:///tmp/six.whl", "addresses are not taken"),
        ("https://evil.example/six.tar.gz", "addresses are not taken"),
        ("./six", "files and folders are not taken"),
        ("../../six", "files and folders are not taken"),
        ("six/../../x", "files and folders are not taken"),
        ("six-1.17.0-py2.py3-none-any.whl", "files and folders are not taken"),
        ("six.tar.gz", "files and folders are not taken"),
        ("..", "files and folders are not taken"),
        ("${HOME}", "that is no requirement"),
        ("six==${VERSION}", "that is no requirement"),
        ("six\x00==1", "that is no requirement"),
        ("s\u0456x==1", "that is no requirement"),
        ("x" * 200, "that is no requirement"),
    ],
)
def test_what_says_where_packages_come_from_is_refused_with_its_line(line: str, why: str) -> None:
    with pytest.raises(BadRequirements) as refused:
        read_requirements(f"numpy\n\n{line}\n".encode())
    assert refused.value.line == 3
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"six\n" * 1001, "more than 1000"),
        (b"#" * 300_000, "at most 262144 are read"),
        (b"\xff\xfe", "is not UTF-8 at byte 0"),
    ],
)
def test_a_file_that_is_too_large_or_no_text_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(BadRequirements, match=why):
        read_requirements(content)


def test_the_digest_tells_requirements_pythons_and_sources_apart_and_not_their_order() -> None:
    digest = requirements_digest(("a", "b"), "Python 3.11", ("pip",))
    assert digest == requirements_digest(("b", "a", "a"), "Python 3.11", ("pip",))
    others = {
        requirements_digest(("a",), "Python 3.11", ("pip",)),
        requirements_digest(("a", "b"), "Python 3.12", ("pip",)),
        requirements_digest(("a", "b"), "Python 3.11", ("https://x",)),
        requirements_digest(("a", "b", "pip"), "Python 3.11", ()),
    }
    assert len(others | {digest}) == 5
