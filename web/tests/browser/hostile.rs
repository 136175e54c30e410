//! Texts that would run a script, or deceive a reader, if a page contained them without escaping.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name of the type of the hostile tasks.
pub(crate) const HOSTILE_NAME: &str = "<img src=x onerror=window.pwned=1>";

/// A task whose payload, output, progress and error are hostile.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hostile {
    pub(crate) fails: bool,
    pub(crate) texts: Vec<String>,
    keys: BTreeMap<String, bool>,
}

impl Hostile {
    pub(crate) fn new(fails: bool) -> Self {
        let texts = || TEXTS.iter().map(|it| String::from(*it));
        let keys = texts().map(|it| (it, true)).collect();
        Self {
            fails,
            texts: texts().collect(),
            keys,
        }
    }
}

/// This occurs in each text that would run a script.
pub(crate) const MARKER: &str = "window.pwned=1";

const TEXTS: &[&str] = &[
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "\"><svg onload=window.pwned=1>",
    "'><body onload=window.pwned=1>",
    "<svg><animate onbegin=window.pwned=1 attributeName=x dur=1s>",
    "<iframe srcdoc=\"<script>parent.window.pwned=1</script>\"></iframe>",
    "<a href=\"javascript:window.pwned=1\" autofocus onfocus=window.pwned=1>x</a>",
    "<details open ontoggle=window.pwned=1>",
    "<input autofocus onfocus=window.pwned=1>",
    "<math><mtext></table><img src=x onerror=window.pwned=1>",
    "<base href=\"javascript:window.pwned=1//\">",
    "<meta http-equiv=refresh content=\"0;url=javascript:window.pwned=1\">",
    "<style>@import 'javascript:window.pwned=1';</style>",
    "<object data=\"data:text/html,<script>window.pwned=1</script>\">",
    "<form action=\"javascript:window.pwned=1\"><button autofocus>x",
    "</title></textarea></style></noscript><img src=x onerror=window.pwned=1>",
    "<!--><img src=x onerror=window.pwned=1>-->",
    "&lt;img src=x onerror=window.pwned=1&gt;",
    "\u{3c}img src=x onerror=window.pwned=1\u{3e}",
    "{{constructor.constructor('window.pwned=1')()}}",
    "${window.pwned=1}",
    "javascript:window.pwned=1",
    "\u{202e}1=denwp.wodniw",
    "\u{0}\u{1b}[2J\u{7}",
    "event: update\ndata: {\"parts\":[[\"main\",\"<img src=x onerror=window.pwned=1>\"]]}\n\n",
];
