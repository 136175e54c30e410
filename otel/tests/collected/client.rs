//! [`Client`]: the requests of a browser or of a scraper.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends requests to a site.
#[derive(Clone, Copy)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Client {
    pub(crate) async fn get(self, path: &str) -> String {
        let reply = self.send("GET", path, "").await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.body
    }

    /// Sends a request with JSON, as a page of the site does.
    pub(crate) async fn send(self, method: &str, path: &str, body: &str) -> Reply {
        let (Self(address), length) = (self, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nsec-fetch-site: same-origin\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        let status = head.split(' ').nth(1).expect("a status");
        Reply {
            status: status.parse().unwrap(),
            body: body.to_owned(),
        }
    }
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
