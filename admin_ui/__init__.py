"""The web console: pages over the control API; `admin_ui.console` says how one is made."""
