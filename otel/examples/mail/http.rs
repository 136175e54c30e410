//! [`post`]: the HTTP client of the simulated customers.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Result;

/// Sends a request with JSON.
///
/// # Errors
///
/// The server does not answer, or refuses the request.
pub(crate) async fn post(address: SocketAddr, path: &'static str, body: Value) -> Result<()> {
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match answer.starts_with("HTTP/1.1 202 ") {
        true => Ok(()),
        false => Err(format!("the site has refused a request: {answer}").into()),
    }
}
