"use strict";

// What stands behind the '#' is sent to nobody by browsers; only this form hands it over.
const code = document.getElementById("code");
if (location.hash.length > 1) {
  code.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
}
document.getElementById(code.value ? "password" : "code").focus();
