//! Parser of a request: pure. Only the header fields that decide on access are read.

use zeroize::Zeroizing;

use crate::HttpResponse;

/// A request for a page.
#[derive(Clone, Copy)]
pub struct HttpRequest<'a> {
    /// The path, without a query.
    pub path: &'a str,
    /// The text after the question mark; empty if there is none.
    pub query: &'a str,
    /// The token of the field `Authorization: Bearer` (RFC 6750, section 2.1). It is a secret.
    pub bearer: Option<&'a [u8]>,
    /// This host as named by the client: the field `Host` (RFC 9110, section 7.2) without its port;
    /// `None` if the field is absent, repeated or malformed.
    pub host: Option<&'a str>,
    /// True if only the header of the response is requested.
    pub(crate) head: bool,
}

impl std::fmt::Debug for HttpRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns true if a request is complete to its empty line.
pub(crate) fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n")
        || request.windows(2).any(|two| two == b"\n\n")
}

impl<'a> HttpRequest<'a> {
    /// Reads a request that is complete to its empty line. One that is malformed, or not for a
    /// page, gets a refusal.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, HttpResponse> {
        if !is_whole(bytes) {
            return Err(HttpResponse::text(400, "the request is incomplete or too long\n"));
        }
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let line = std::str::from_utf8(lines.next().unwrap_or_default()).unwrap_or_default();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [method @ ("GET" | "HEAD"), target, version] if version.starts_with("HTTP/1.") => {
                let (path, query) = target.split_once('?').unwrap_or((target, ""));
                let fields = lines.map_while(field);
                if fields.clone().any(|field| field.contains(&b'\r')) {
                    return Err(HttpResponse::text(400, "a header field has a bare CR\n"));
                }
                let bearer = fields.clone().find_map(bearer);
                let mut hosts = fields.filter_map(|field| value(field, b"Host"));
                let host = hosts.next().filter(|_| hosts.next().is_none()).and_then(host);
                Ok(Self { path, query, bearer, host, head: method == "HEAD" })
            }
            [_, _, version] if version.starts_with("HTTP/1.") => {
                Err(HttpResponse::text(405, "only GET is supported\n"))
            }
            _ => Err(HttpResponse::text(400, "not an HTTP/1 request\n")),
        }
    }
}

/// A header field without its line ending; `None` at the empty line, which ends the header. A
/// remaining CR ends no line and makes the field invalid (RFC 9112, section 2.2).
fn field(line: &[u8]) -> Option<&[u8]> {
    let line = line.trim_ascii_end();
    (!line.is_empty()).then_some(line)
}

/// The token of a field that holds one. Names of fields and schemes are case-insensitive.
fn bearer(field: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value(field, b"Authorization")?.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// The value of a field of this name.
fn value<'a>(field: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    field[..colon].eq_ignore_ascii_case(name).then(|| field[colon + 1..].trim_ascii())
}

/// A host without its port: `uri-host [ ":" port ]`, where an IPv6 address is in brackets.
fn host(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, port)| (host, port.strip_prefix(':')))?,
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let has_end = match port {
        Some(port) => is_port(port),
        None => text.ends_with(']') || !text.starts_with('['),
    };
    (has_end && !host.is_empty()).then_some(host)
}

impl<'a> HttpRequest<'a> {
    /// A parameter of the query, still encoded.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut all = self.query.split('&').filter_map(|one| one.split_once('='));
        all.find_map(|(key, value)| (key == name).then_some(value))
    }
}

/// The bytes that a part of a query represents (RFC 3986, section 2.1); `None` if a `%` is not
/// followed by two digits. They may be a secret.
pub(crate) fn decoded(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            bytes.push((high * 16 + low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_is_read_without_its_port() {
        let read = |fields: &str| {
            let text = format!("GET / HTTP/1.1\r\n{fields}\r\n");
            HttpRequest::parse(text.as_bytes()).unwrap().host.map(ToOwned::to_owned)
        };
        for (field, host) in [
            ("Host: localhost\r\n", Some("localhost")),
            ("host:127.0.0.1:9124\r\n", Some("127.0.0.1")),
            ("HOST: [::1]:80\r\n", Some("::1")),
            ("Host: [::1]\r\n", Some("::1")),
            ("Host: a.example:\r\n", Some("a.example")),
            ("Host: [::1\r\n", None),
            ("Host: [::1]80\r\n", None),
            ("Host: a:b\r\n", None),
            ("Host: \r\n", None),
            ("Host: a\r\nHost: localhost\r\n", None),
            ("X-Host: a\r\n", None),
        ] {
            assert_eq!(read(field).as_deref(), host, "{field}");
        }
    }

    #[test]
    fn a_bare_carriage_return_is_refused() {
        for field in ["Host: a\r b", "Host: a\rHost: localhost", "X\r: a"] {
            let text = format!("GET / HTTP/1.1\r\n{field}\r\n\r\n");
            assert_eq!(HttpRequest::parse(text.as_bytes()).unwrap_err().code, 400, "{field:?}");
        }
        assert!(HttpRequest::parse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody \r body").is_ok());
    }

    #[test]
    fn a_parameter_is_found_by_its_whole_name() {
        let request =
            HttpRequest::parse(b"GET /?a=1&xtoken=2&token=3=&token=4 HTTP/1.1\n\n").unwrap();
        assert_eq!(request.parameter("token"), Some("3="));
        assert_eq!(request.parameter("since"), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes: Vec<u8>) {
            let text: Vec<_> = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(decoded(&text.concat()).unwrap().to_vec(), bytes);
        }

        #[test]
        fn any_fields_are_read_or_left(line in "[ -~]{0,40}", fields in "([!-~]{1,9}: ?[ -~]{0,30}\r\n){0,4}") {
            let text = format!("GET /{line} HTTP/1.1\r\n{fields}\r\n");
            if let Ok(request) = HttpRequest::parse(text.as_bytes()) {
                prop_assert!(request.host.is_none_or(|host| !host.is_empty() && fields.contains(host)));
                let given = request.parameter("token");
                prop_assert!(given.and_then(decoded).is_none_or(|token| token.len() <= line.len()));
            }
        }
    }

    #[test]
    fn a_token_is_read_from_its_own_field_only() {
        let read = |text: &'static str| HttpRequest::parse(text.as_bytes()).unwrap().bearer;
        assert_eq!(read("GET / HTTP/1.1\r\nauthorization:bearer  ab\r\n\r\n"), Some(&b"ab"[..]));
        for without in [
            "GET / HTTP/1.1\r\nX-Authorization: Bearer ab\r\n\r\n",
            "GET / HTTP/1.1\r\nAuthorization: Basic ab\r\n\r\n",
            "GET / HTTP/1.1\r\nAuthorization\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\nAuthorization: Bearer ab\r\n",
        ] {
            assert_eq!(read(without), None, "{without}");
        }
    }

    #[test]
    fn nothing_shows_the_token() {
        let request =
            HttpRequest::parse(b"GET /a?b HTTP/1.1\nAuthorization: Bearer geheim\n\n").unwrap();
        assert_eq!((request.path, request.query, request.head), ("/a", "b", false));
        assert!(!format!("{request:?}").contains("geheim"));
    }
}
