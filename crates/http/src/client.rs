//! HTTP client for one GET request, with limits of time and size. Transfer codings and TLS are not
//! supported and are rejected; a redirection is returned as any other response.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::{Duration, Instant};

use horolog_sys::zone;
use zeroize::Zeroizing;

use crate::client_response::{self, MalformedResponse, ReceivedHttpResponse};

const DEFAULT_PORT: u16 = 80;

/// URL `http://HOST[:PORT][/PATH]`; the default port is 80. A query and user information are not
/// accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    host: String,
    port: u16,
    path: String,
}

/// Reason for which a text is not a valid [`Url`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// TLS is not supported.
    #[error(
        "https is not supported; use http, over other networks through a tunnel such as ssh -L"
    )]
    Https,
    /// The text has another form than `http://HOST[:PORT][/PATH]`, or contains a character that is
    /// not accepted.
    #[error("write it as http://HOST:PORT")]
    InvalidForm,
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.starts_with("https://") {
            return Err(UrlError::Https);
        }
        // A request is a line of text, so bytes that could end it or start another field are
        // rejected.
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"?#@\\\"<>".contains(&byte);
        let rest = text.strip_prefix("http://").ok_or(UrlError::InvalidForm)?;
        if !rest.bytes().all(is_allowed) {
            return Err(UrlError::InvalidForm);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // RFC 6874 writes the '%' of an IPv6 zone as '%25' in a URL; the plain form is accepted as
        // well.
        let authority = authority.replacen("%25", "%", 1);
        let (host, port) = zone::split_host(&authority).map_err(|_| UrlError::InvalidForm)?;
        let is_bare_ipv6 = host.contains(':') && !authority.starts_with('[');
        if is_bare_ipv6 || host.contains(['[', ']']) {
            return Err(UrlError::InvalidForm);
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.unwrap_or(DEFAULT_PORT),
            path: path.to_owned(),
        })
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
    /// Returns the path, with its leading slash; empty if the URL has none.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Resolves the host to its first address, with the port of the URL. The resolver may take long
    /// for a name.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        zone::resolve(&self.host, self.port).map(|addresses| addresses[0])
    }
}

/// GET request to send, with the limits of the exchange.
#[derive(Clone, Copy)]
pub struct GetRequest<'a> {
    /// Address of the server.
    pub address: SocketAddr,
    /// Request target: path and query, such as `/counters?port=123`.
    pub target: &'a str,
    /// Secret token for the field `Authorization: Bearer`, if required.
    pub bearer: Option<&'a str>,
    /// Timeout of the whole exchange, from connecting to the last byte of the response.
    pub timeout: Duration,
    /// Largest accepted length of the body, in bytes.
    pub body_max: usize,
}

/// Reason for which no response was received.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The server cannot be reached, or did not respond in time.
    #[error("{}", describe_error(.0))]
    Io(#[from] io::Error),
    /// The received bytes are not a valid response.
    #[error("{0}")]
    Malformed(#[from] MalformedResponse),
}

fn describe_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no response in time".to_owned(),
        _ => error.to_string(),
    }
}

/// Sends a GET request and returns the response, with any status code, after the server has closed
/// the connection.
pub fn get(get: &GetRequest<'_>) -> Result<ReceivedHttpResponse, GetError> {
    let deadline = Instant::now() + get.timeout;
    let mut stream = TcpStream::connect_timeout(&get.address, remaining(deadline)?)?;
    stream.set_write_timeout(Some(remaining(deadline)?))?;
    stream.write_all(encode_request(get).as_bytes())?;
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        let length = match stream.read(&mut buffer) {
            // With a receive timeout, a signal interrupts the call even if its handler has
            // SA_RESTART (signal(7)).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        received.extend_from_slice(&buffer[..length]);
        if length == 0 || received.len() > client_response::HEADER_BYTES_MAX + get.body_max {
            break;
        }
    }
    Ok(ReceivedHttpResponse::parse(&received, get.body_max)?)
}

/// Encodes the request in a single buffer, so that no copy of the token remains unwiped.
fn encode_request(get: &GetRequest<'_>) -> Zeroizing<String> {
    // The zone of an address has no meaning for another host (RFC 6874, section 4).
    let host = zone::in_zone_of(get.address, 0).to_string();
    let [field, token, end] =
        get.bearer.map_or([""; 3], |token| ["Authorization: Bearer ", token, "\r\n"]);
    let line = ["GET ", get.target, " HTTP/1.0\r\nHost: ", &host, "\r\n"];
    Zeroizing::new([&line[..], &[field, token, end, "Connection: close\r\n\r\n"]].concat().concat())
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::{HttpResponder, HttpResponse};

    fn fetch(address: SocketAddr, within: Duration) -> Result<ReceivedHttpResponse, GetError> {
        let bearer = Some("0123456789abcdef");
        get(&GetRequest { address, target: "/a?b", bearer, timeout: within, body_max: 100 })
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
            assert_eq!(read(bad), Err(UrlError::InvalidForm), "{bad}");
        }
    }
}
