"""The screens, one module for each thing they are about; `admin_ui.console` lists them."""
