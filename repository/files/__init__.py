"""Files and folders on disk, written whole and read with bounds."""
