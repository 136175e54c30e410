//! A minimal client of HTTP 1.1.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

/// A connection that serves one request after the other.
pub(crate) struct Client {
    stream: BufStream<TcpStream>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        // Without this, a request would wait for the acknowledgement of the one before.
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufStream::new(stream),
        })
    }

    pub(crate) async fn get(&mut self, path: &str) -> io::Result<Answer> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        Answer::read(&mut self.stream).await
    }
}

/// A response of the service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The value of `Retry-After`, in seconds.
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: String,
}

impl Answer {
    async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Self> {
        let status = line(stream).await?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| bad("no status"))?;
        let (mut length, mut retry_after) = (None, None);
        loop {
            let header = line(stream).await?;
            let Some((name, value)) = header.split_once(':') else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok(),
                "retry-after" => retry_after = value.trim().parse().ok(),
                _ => {}
            }
        }
        let mut body = vec![0; length.ok_or_else(|| bad("no length"))?];
        stream.read_exact(&mut body).await?;
        let body = String::from_utf8(body).map_err(|_| bad("no text"))?;
        Ok(Self {
            status,
            retry_after,
            body,
        })
    }
}

/// Reads a line, without its end.
async fn line(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_that_follow_one_another_are_told_apart() {
        let mut text: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nrows\n\
            HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n";
        let first = Answer::read(&mut text).await.unwrap();
        assert_eq!((first.status, first.retry_after), (200, None));
        assert_eq!(first.body, "rows\n");
        let second = Answer::read(&mut text).await.unwrap();
        assert_eq!((second.status, second.retry_after), (503, Some(2)));
        assert_eq!(second.body, "");
        let end = Answer::read(&mut text).await.unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn what_is_no_answer_is_an_error() {
        for text in [
            "nonsense\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nrow",
            "HTTP/1.1 200 OK\r\ncontent-le",
        ] {
            let answer = Answer::read(&mut text.as_bytes()).await;
            assert!(answer.is_err(), "{text:?}: {answer:?}");
        }
    }
}
