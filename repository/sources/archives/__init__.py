"""Archives, unpacked entry by entry: tar and zip."""
