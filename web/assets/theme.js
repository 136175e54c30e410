// Sets the chosen theme before the page is drawn, so that it does not flash.
try { document.documentElement.dataset.theme = localStorage.getItem("throng-theme") || "system"; } catch {}
