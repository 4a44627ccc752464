//! HTTP client: one page by GET, within limits of time and size. Unsupported features
//! (redirections, chunks, TLS) are rejected by name.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::{Duration, Instant};

use horolog_sys::zone;
use zeroize::Zeroizing;

use crate::client_response::{self, ClientResponse, MalformedResponse};

const PORT: u16 = 80;

/// Location of a page: `http://HOST[:PORT][/PATH]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    host: String,
    port: u16,
    path: String,
}

/// Reason why a text is not a [`Url`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// TLS is not supported here.
    #[error(
        "https is not supported; use http, over other networks through a tunnel such as ssh -L"
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
        // A request is a line: bytes that could end it, or begin another field, are rejected.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\\\"<>".contains(&byte);
        let rest = text.strip_prefix("http://").ok_or(UrlError::Form)?;
        if !rest.bytes().all(is_plain) {
            return Err(UrlError::Form);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // RFC 6874: a zone's '%' is written as '%25' in a URL; people also write it plainly.
        let authority = authority.replacen("%25", "%", 1);
        let (host, port) = zone::split_host(&authority).map_err(|_| UrlError::Form)?;
        let is_bare_ipv6 = host.contains(':') && !authority.starts_with('[');
        if is_bare_ipv6 || host.contains(['[', ']']) {
            return Err(UrlError::Form);
        }
        Ok(Self { host: host.to_owned(), port: port.unwrap_or(PORT), path: path.to_owned() })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        if host.contains(':') {
            write!(f, "http://[{}]:{port}{path}", host.replace('%', "%25"))
        } else {
            write!(f, "http://{host}:{port}{path}")
        }
    }
}

impl Url {
    /// The path; empty if the URL has none.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The address of its host. Queries the resolver for a name, which may take long.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        zone::resolve(&self.host, self.port).map(|addresses| addresses[0])
    }
}

/// Request for one page.
#[derive(Clone, Copy)]
pub struct Get<'a> {
    /// Address of the server.
    pub address: SocketAddr,
    /// The path and what follows it, such as `/counters?port=123`.
    pub target: &'a str,
    /// Token that authorises the request, if required. It is a secret.
    pub bearer: Option<&'a str>,
    /// Overall timeout.
    pub within: Duration,
    /// Greatest length of the body, in bytes.
    pub body_max: usize,
}

/// Reason why no page was received.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The server cannot be reached, or did not answer in time.
    #[error("{}", describe_error(.0))]
    Io(#[from] io::Error),
    /// The received bytes are not a response.
    #[error("{0}")]
    Malformed(#[from] MalformedResponse),
}

fn describe_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no response in time".to_owned(),
        _ => error.to_string(),
    }
}

/// Requests a page and reads the response, with any status code.
pub fn get(get: &Get<'_>) -> Result<ClientResponse, GetError> {
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
        if length == 0 || answer.len() > client_response::HEADER_BYTES_MAX + get.body_max {
            break;
        }
    }
    Ok(ClientResponse::parse(&answer, get.body_max)?)
}

/// The request as sent; composed in one buffer, so that no part of it is left behind unwiped.
fn request(get: &Get<'_>) -> Zeroizing<String> {
    // A zone is meaningless to the other host (RFC 6874, section 4).
    let host = zone::in_zone_of(get.address, 0).to_string();
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
    use crate::{HttpResponder, HttpResponse};

    fn fetch(address: SocketAddr, within: Duration) -> Result<ClientResponse, GetError> {
        let bearer = Some("0123456789abcdef");
        get(&Get { address, target: "/a?b", bearer, within, body_max: 100 })
    }

    #[test]
    fn page_is_requested_with_the_token() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _responder = HttpResponder::start("pages", listener, |request| {
            assert_eq!(request.bearer, Some(&b"0123456789abcdef"[..]));
            HttpResponse::text(404, format!("{}|{}", request.path, request.query))
        });
        let response = fetch(address, Duration::from_secs(10)).unwrap();
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
        let error = fetch(address, Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.to_string(), "no response in time");
        assert!(begun.elapsed() < Duration::from_secs(5));
        drip.join().unwrap();
    }

    #[test]
    fn urls() {
        let read = |text: &str| text.parse::<Url>().map(|url| url.to_string());
        assert_eq!(read("http://a"), Ok("http://a:80".to_owned()));
        assert_eq!(read("http://[::1]:9/b"), Ok("http://[::1]:9/b".to_owned()));
        assert_eq!(read("http://192.0.2.1:9323/"), Ok("http://192.0.2.1:9323/".to_owned()));
        for zone in ["http://[fe80::1%lo]:9", "http://[fe80::1%25lo]:9"] {
            assert_eq!(read(zone), Ok("http://[fe80::1%25lo]:9".to_owned()));
            let SocketAddr::V6(at) = zone.parse::<Url>().unwrap().resolve().unwrap() else {
                panic!("{zone}");
            };
            assert!(at.scope_id() > 0);
        }
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
