//! The style sheet, the scripts, and their URLs.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::error::WebError;
use crate::visit::no_page;

/// A file that pages load.
struct Asset {
    name: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

const ASSETS: &[Asset] = &[
    Asset {
        name: "app.css",
        media_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../assets/app.css"),
    },
    Asset {
        name: "app.js",
        media_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/app.js"),
    },
    Asset {
        name: "icon.svg",
        media_type: "image/svg+xml",
        bytes: include_bytes!("../assets/icon.svg"),
    },
    Asset {
        name: "theme.js",
        media_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/theme.js"),
    },
    Asset {
        name: "uplot.css",
        media_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../assets/uplot.css"),
    },
    Asset {
        name: "uplot.js",
        media_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/uplot.js"),
    },
];

/// A hash of all assets, which is a part of their URLs. So a browser may keep them for as long as it likes.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    for asset in ASSETS {
        hasher.write(asset.bytes);
    }
    format!("{:016x}", hasher.finish())
});

#[derive(Deserialize)]
pub(crate) struct AssetPath {
    hash: String,
    name: String,
}

/// Returns the URL of an asset, relative to the root.
pub(crate) fn url(name: &str) -> String {
    format!("assets/{}/{name}", *HASH)
}

pub(crate) async fn serve(Path(path): Path<AssetPath>) -> Result<Response, WebError> {
    let asset = ASSETS.iter().find(|asset| asset.name == path.name);
    let asset = asset.ok_or_else(no_page)?;
    // While a host deploys another version, a page of one process may load the assets of another one.
    let caching = match path.hash == *HASH {
        true => "public, max-age=31536000, immutable",
        false => "no-store",
    };
    let headers = [(CONTENT_TYPE, asset.media_type), (CACHE_CONTROL, caching)];
    Ok((headers, asset.bytes).into_response())
}
