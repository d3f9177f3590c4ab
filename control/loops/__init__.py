"""Background loops of the control process, and the decisions they carry out."""
