//! The asking side: one page by GET, within a time and a size. What it does not know (redirections,
//! chunks, TLS) it refuses by name.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::response::{self, Malformed, Response};

const PORT: u16 = 80;

/// Where a page is: `http://HOST[:PORT][/PATH]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    host: String,
    port: u16,
    path: String,
}

/// Why a text is no [`Url`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// TLS is not spoken here.
    #[error(
        "https is not offered; ask by http, through a tunnel such as ssh -L where others listen"
    )]
    Https,
    /// It has another form.
    #[error("write it as http://HOST:PORT")]
    Form,
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.starts_with("https://") {
            return Err(UrlError::Https);
        }
        // A request is a line: nothing that could end it, or begin another field, is taken.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\\\"<>".contains(&byte);
        let rest = text.strip_prefix("http://").ok_or(UrlError::Form)?;
        if !rest.bytes().all(is_plain) {
            return Err(UrlError::Form);
        }
        let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = if let Some(rest) = place.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or(UrlError::Form)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::Form)?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        } else {
            let (host, port) = place.split_once(':').unwrap_or((place, ""));
            (host, Some(port).filter(|port| !port.contains(':')))
        };
        let port = match port.ok_or(UrlError::Form)? {
            "" if place.ends_with(':') => return Err(UrlError::Form),
            "" => PORT,
            port => port.parse().ok().filter(|port| *port > 0).ok_or(UrlError::Form)?,
        };
        if host.is_empty() || host.contains(['[', ']']) {
            return Err(UrlError::Form);
        }
        Ok(Self { host: host.to_owned(), port, path: path.to_owned() })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        if host.contains(':') {
            write!(f, "http://[{host}]:{port}{path}")
        } else {
            write!(f, "http://{host}:{port}{path}")
        }
    }
}

impl Url {
    /// The path; empty where none was given.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The address of its host. Asks the resolver where that is a name, which may take long.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let mut addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        addresses.next().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// One page to be asked for.
#[derive(Clone, Copy)]
pub struct Get<'a> {
    /// Whom to ask.
    pub address: SocketAddr,
    /// The path and what follows it, such as `/counters?port=123`.
    pub target: &'a str,
    /// What proves that one may ask, where that is wanted. It is a secret.
    pub bearer: Option<&'a str>,
    /// How long it may take in all.
    pub within: Duration,
    /// How long the body may be, in bytes.
    pub body_max: usize,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The other side cannot be reached, or did not answer in time.
    #[error("{}", said(.0))]
    Io(#[from] io::Error),
    /// What it said is no answer.
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

fn said(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => error.to_string(),
    }
}

/// Asks for a page and reads the answer, whatever its status code is.
pub fn get(get: &Get<'_>) -> Result<Response, GetError> {
    let deadline = Instant::now() + get.within;
    let mut stream = TcpStream::connect_timeout(&get.address, left(deadline)?)?;
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(request(get).as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let length = match stream.read(&mut buffer) {
            // With a time limit, a signal ends the call even where handlers restart others.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        answer.extend_from_slice(&buffer[..length]);
        if length == 0 || answer.len() > response::HEADER_BYTES_MAX + get.body_max {
            break;
        }
    }
    Ok(Response::parse(&answer, get.body_max)?)
}

/// The request as it is sent; put together at once, so that no part of it is left behind unwiped.
fn request(get: &Get<'_>) -> Zeroizing<String> {
    let host = get.address.to_string();
    let [field, token, end] =
        get.bearer.map_or([""; 3], |token| ["Authorization: Bearer ", token, "\r\n"]);
    let line = ["GET ", get.target, " HTTP/1.0\r\nHost: ", &host, "\r\n"];
    Zeroizing::new([&line[..], &[field, token, end, "Connection: close\r\n\r\n"]].concat().concat())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::{Answer, Responder};

    fn ask(address: SocketAddr, within: Duration) -> Result<Response, GetError> {
        let bearer = Some("0123456789abcdef");
        get(&Get { address, target: "/a?b", bearer, within, body_max: 100 })
    }

    #[test]
    fn a_page_is_asked_for_with_the_token() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _responder = Responder::start("pages", listener, |request| {
            assert_eq!(request.bearer, Some(&b"0123456789abcdef"[..]));
            Answer::text(404, format!("{}|{}", request.path, request.query))
        });
        let response = ask(address, Duration::from_secs(10)).unwrap();
        assert_eq!((response.code, response.body.as_slice()), (404, &b"/a|b"[..]));
    }

    #[test]
    fn who_never_ends_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let drip = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Until the other side has gone.
            while stream.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let begun = Instant::now();
        let error = ask(address, Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.to_string(), "no answer in time");
        assert!(begun.elapsed() < Duration::from_secs(5));
        drip.join().unwrap();
    }

    #[test]
    fn urls() {
        let read = |text: &str| text.parse::<Url>().map(|url| url.to_string());
        assert_eq!(read("http://a"), Ok("http://a:80".to_owned()));
        assert_eq!(read("http://[::1]:9/b"), Ok("http://[::1]:9/b".to_owned()));
        assert_eq!(read("http://192.0.2.1:9323/"), Ok("http://192.0.2.1:9323/".to_owned()));
        assert_eq!(read("https://a"), Err(UrlError::Https));
        for bad in [
            "",
            "a",
            "http://",
            "http://:1",
            "http://a:",
            "http://a:0",
            "http://a:99999",
            "http://a:1:2",
            "http://a\r\nX: y",
            "http://a/ b",
            "http://u@a",
            "http://[a]:1",
            "http://[::1",
            "http://[::1]9",
            "ftp://a",
            "http://a?b",
        ] {
            assert_eq!(read(bad), Err(UrlError::Form), "{bad}");
        }
    }
}
