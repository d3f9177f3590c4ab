"""One model of a commit, laid out as files in a draft of its snapshot; nothing is checked out.

Plain files are streamed out of git, files of Git LFS are linked from the store.
"""

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from pathlib import Path

from control.git.push.off_loop import held
from repository.findings import Finding
from repository.git.contents.blobs import Blobs
from repository.git.contents.tree import TreeEntry
from repository.lfs import pointer as pointers
from repository.lfs.errors import BadPointer
from repository.lfs.paths import LfsPaths
from repository.lfs.pointer import Pointer
from repository.lfs.threads import in_thread
from repository.snapshots.errors import BadEntry
from repository.snapshots.write import Draft

_BLOCK_BYTES = 1 << 20


class DraftBuilder:
    """Lays models of one repository out; `lfs` are the store's places, `name` the repository's."""

    def __init__(self, blobs: Blobs, lfs: LfsPaths, name: str) -> None:
        self._blobs = blobs
        self._lfs = lfs
        self._name = name

    async def fill(
        self, draft: Draft, prefix: str, entries: Iterable[TreeEntry]
    ) -> Sequence[Finding]:
        """Write `entries`, whose paths begin with `prefix`, into the draft.

        What is amiss with Git LFS is a finding, its path that in the commit. Raises what git, the
        draft and the disk raise.
        """
        found = []
        for entry in entries:
            complaint = await self._add(draft, entry.path.removeprefix(prefix), entry)
            if complaint is not None:
                found.append(Finding(Path(entry.path), 0, 0, *complaint))
        return found

    async def _add(self, draft: Draft, path: str, entry: TreeEntry) -> tuple[str, str] | None:
        if entry.size_bytes > pointers.LARGEST_BYTES:
            await self._stream(draft, path, entry.oid)
            return None
        content = await self._blobs.read(entry.oid, pointers.LARGEST_BYTES)
        try:
            pointer = pointers.parse(content)
        except BadPointer as error:
            return "E431", f"{error}; add the file again with git-lfs installed"
        if pointer is None:
            await in_thread(draft.add, path, [content])
            return None
        return await in_thread(self._link, draft, path, pointer)

    async def _stream(self, draft: Draft, path: str, oid: str) -> None:
        async with held(lambda: draft.file(path)) as new:
            block = bytearray()
            async with aclosing(self._blobs.stream(oid)) as chunks:
                async for chunk in chunks:
                    block += chunk
                    if len(block) >= _BLOCK_BYTES:
                        await in_thread(new.write, bytes(block))
                        block.clear()
            await in_thread(new.write, bytes(block))

    def _link(self, draft: Draft, path: str, pointer: Pointer) -> tuple[str, str] | None:
        source = self._lfs.claim(self._name, pointer.oid)
        try:
            size_bytes = source.lstat().st_size
            if size_bytes == pointer.size_bytes:
                draft.link(path, source, pointer.oid, pointer.size_bytes)
                return None
        except FileNotFoundError:
            return "E430", (
                f"points to the LFS object {pointer.oid[:12]}…, which has not been uploaded; run "
                "'git lfs push --all origin HEAD' and push again"
            )
        except BadEntry as error:
            return "E431", f"{error}"
        return "E431", (
            f"says its LFS object has {pointer.size_bytes} bytes and it has {size_bytes}; add the "
            "file again with git-lfs installed"
        )
