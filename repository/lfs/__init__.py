"""Git LFS: pointers, the batch API's decisions, its tokens, and the store of large files."""
