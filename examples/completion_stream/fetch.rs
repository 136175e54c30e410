//! An HTTP 1.0 request, on a connection of its own.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::crawl::Path;

/// The links of a page.
pub(crate) type Links = Vec<Path>;

/// The reason why there is no page.
#[derive(Debug)]
pub(crate) enum Error {
    /// The page does not exist.
    NotFound,
    /// The site is temporarily unavailable.
    Busy,
    /// The connection failed, or the answer was not a page.
    Broken(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such page"),
            Self::Busy => f.write_str("the site is busy"),
            Self::Broken(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Fetches a page, and returns its links.
pub(crate) async fn fetch(address: SocketAddr, path: Path) -> Result<Links, Error> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    links(&answer)
}

/// Parses an answer.
fn links(answer: &str) -> Result<Links, Error> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut_off)?;
    match head.split(' ').nth(1) {
        Some("200") => {}
        Some("404") => return Err(Error::NotFound),
        Some("503") => return Err(Error::Busy),
        _ => return Err(io::Error::new(ErrorKind::InvalidData, "an unexpected status").into()),
    }
    if length(head) != Some(body.len()) {
        return Err(cut_off().into());
    }
    Ok(body.lines().map(Path::from).collect())
}

/// The length of the body, according to the head.
fn length(head: &str) -> Option<usize> {
    let headers = head.lines().filter_map(|line| line.split_once(": "));
    let mut lengths = headers.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next()?.1.parse().ok()
}

fn cut_off() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the answer was cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_page_is_its_links() {
        let answer = "HTTP/1.0 200 OK\r\nContent-Length: 6\r\ndate: today\r\n\r\n/1\n/2\n";
        assert_eq!(links(answer).unwrap(), ["/1", "/2"]);
        let answer = "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n";
        assert!(links(answer).unwrap().is_empty());
    }

    #[test]
    fn an_answer_without_a_page_is_an_error() {
        let cut = "HTTP/1.0 200 OK\r\ncontent-length: 6\r\n\r\n/1\n";
        for answer in ["", "HTTP/1.0 200 OK\r\n", "nonsense\r\n\r\n", cut] {
            assert!(matches!(links(answer), Err(Error::Broken(_))), "{answer:?}");
        }
        let busy = "HTTP/1.0 503 Service Unavailable\r\n\r\n";
        assert!(matches!(links(busy), Err(Error::Busy)));
        let none = "HTTP/1.0 404 Not Found\r\n\r\n";
        assert!(matches!(links(none), Err(Error::NotFound)));
    }
}
