"""The style of `server.rest.openapi.docs_page`: the colours and sizes of the console."""

STYLE = """
:root{color-scheme:light dark;--ink:#1a1d21;--soft:#565d66;--paper:#f6f7f9;--card:#fff;
--line:#d8dce2;--accent:#0b57d0;--get:#12693a;--post:#8a4b00;--code:#eceff3}
@media (prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#a3abb5;--paper:#121417;
--card:#1b1e23;--line:#353a42;--accent:#8ab4f8;--get:#7fd39b;--post:#f3bd6b;--code:#24282e}}
*{box-sizing:border-box}
html{scroll-behavior:smooth}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--paper);color:var(--ink);
font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header,main{max-width:60rem;margin:0 auto;padding:0 1rem}
header{padding-top:2rem}
h1{margin:0;font-size:1.375rem;line-height:1.25}
.version{font-weight:400;color:var(--soft);font-size:1rem}
header p{margin:.5rem 0 0;color:var(--soft)}
a{color:var(--accent)}
nav{display:flex;flex-wrap:wrap;gap:.25rem 1rem;margin-top:1rem;padding:.75rem 0;
border-block:1px solid var(--line)}
nav a{text-decoration:none}
nav a:hover{text-decoration:underline}
section{margin:2rem 0}
h2{font-size:1.125rem;margin:0 0 .5rem}
details{background:var(--card);border:1px solid var(--line);border-radius:.5rem;
margin-bottom:.375rem;scroll-margin-top:1rem}
details:target{border-color:var(--accent)}
summary{display:grid;grid-template-columns:3.5rem 1fr;gap:0 .5rem;align-items:baseline;
padding:.5rem .75rem;cursor:pointer;list-style:none}
summary::-webkit-details-marker{display:none}
#schemas summary{grid-template-columns:1fr}
a:focus-visible,summary:focus-visible{outline:2px solid var(--accent);outline-offset:2px;
border-radius:.5rem}
.verb{font-size:.75rem;font-weight:700;letter-spacing:.04em}
.get{color:var(--get)}
.post{color:var(--post)}
code,pre{font:.875em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.path{font-weight:600;overflow-wrap:anywhere}
.what{grid-column:2;color:var(--soft);font-size:.9375rem}
#schemas .what{grid-column:1}
dl{display:grid;grid-template-columns:minmax(8rem,auto) 1fr;gap:.25rem 1rem;margin:0;
padding:.5rem .75rem .75rem;border-top:1px solid var(--line);font-size:.9375rem}
dt{color:var(--soft);overflow-wrap:anywhere}
dd{margin:0;overflow-wrap:anywhere}
pre{margin:0;padding:.75rem;overflow-x:auto;border-top:1px solid var(--line);
background:var(--code);border-radius:0 0 .5rem .5rem}
@media (max-width:36rem){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.375rem}}
@media (min-width:52rem){summary{grid-template-columns:3.5rem 1.2fr 1fr}
.what{grid-column:3}#schemas summary{grid-template-columns:1fr 2fr}#schemas .what{grid-column:2}}
"""
