//! Parser of HTTP requests. Pure; of the header it reads only the fields that decide on access.

use zeroize::Zeroizing;

use crate::HttpResponse;

/// GET or HEAD request received by the server.
#[derive(Clone, Copy)]
pub struct HttpRequest<'a> {
    /// Path, without the query.
    pub path: &'a str,
    /// Query, the text after the question mark; empty if there is none.
    pub query: &'a str,
    /// Token of the first field `Authorization: Bearer` (RFC 6750, section 2.1); `None` without
    /// one. It is a secret.
    pub bearer: Option<&'a [u8]>,
    /// Name of this host in the field `Host` (RFC 9110, section 7.2), without the port and the
    /// brackets of an IPv6 address; `None` if the field is absent, repeated or malformed.
    pub host: Option<&'a str>,
    /// True for a HEAD request, whose response has no body.
    pub(crate) is_head: bool,
}

impl std::fmt::Debug for HttpRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpRequest").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns true if a request is complete up to the empty line that ends its header; bare line feeds
/// count as line ends.
pub(crate) fn is_complete(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n")
        || request.windows(2).any(|two| two == b"\n\n")
}

impl<'a> HttpRequest<'a> {
    /// Parses a complete request, GET or HEAD. The error is the response that refuses it: it is
    /// incomplete, malformed, or of another method.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, HttpResponse> {
        if !is_complete(bytes) {
            return Err(HttpResponse::text(400, "the request is incomplete or too long\n"));
        }
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let line = std::str::from_utf8(lines.next().unwrap_or_default()).unwrap_or_default();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [method @ ("GET" | "HEAD"), target, version] if version.starts_with("HTTP/1.") => {
                let (path, query) = target.split_once('?').unwrap_or((target, ""));
                let fields = lines.map_while(header_field);
                if fields.clone().any(|field| field.contains(&b'\r')) {
                    return Err(HttpResponse::text(400, "a header field has a bare CR\n"));
                }
                let bearer = fields.clone().find_map(bearer_token);
                let mut hosts = fields.filter_map(|field| field_value(field, b"Host"));
                let host =
                    hosts.next().filter(|_| hosts.next().is_none()).and_then(host_without_port);
                Ok(Self { path, query, bearer, host, is_head: method == "HEAD" })
            }
            [_, _, version] if version.starts_with("HTTP/1.") => {
                Err(HttpResponse::text(405, "only GET is supported\n"))
            }
            _ => Err(HttpResponse::text(400, "not an HTTP/1 request\n")),
        }
    }
}

/// Returns a header field without its line ending; `None` at the empty line, which ends the header.
/// A remaining CR is not a line ending and makes the field invalid (RFC 9112, section 2.2).
fn header_field(line: &[u8]) -> Option<&[u8]> {
    let line = line.trim_ascii_end();
    (!line.is_empty()).then_some(line)
}

/// Returns the token of an `Authorization: Bearer` field; `None` for any other field. Names of
/// fields and schemes are case-insensitive.
fn bearer_token(field: &[u8]) -> Option<&[u8]> {
    let (scheme, token) =
        field_value(field, b"Authorization")?.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Returns the value of a field without surrounding white space if it has this name, in any case;
/// otherwise `None`.
fn field_value<'a>(field: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    field[..colon].eq_ignore_ascii_case(name).then(|| field[colon + 1..].trim_ascii())
}

/// Returns the host of `uri-host [ ":" port ]`, without the brackets of an IPv6 address; `None` if
/// malformed.
fn host_without_port(value: &[u8]) -> Option<&str> {
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
    /// Returns the first value of this parameter in the query, still percent-encoded; `None` if it
    /// is absent.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut all = self.query.split('&').filter_map(|one| one.split_once('='));
        all.find_map(|(key, value)| (key == name).then_some(value))
    }
}

/// Decodes percent-encoding (RFC 3986, section 2.1); `None` if a `%` is not followed by two
/// hexadecimal digits. The result may be a secret.
pub(crate) fn percent_decode(text: &str) -> Option<Zeroizing<Vec<u8>>> {
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
            prop_assert_eq!(percent_decode(&text.concat()).unwrap().to_vec(), bytes);
        }

        #[test]
        fn any_fields_are_read_or_left(line in "[ -~]{0,40}", fields in "([!-~]{1,9}: ?[ -~]{0,30}\r\n){0,4}") {
            let text = format!("GET /{line} HTTP/1.1\r\n{fields}\r\n");
            if let Ok(request) = HttpRequest::parse(text.as_bytes()) {
                prop_assert!(request.host.is_none_or(|host| !host.is_empty() && fields.contains(host)));
                let given = request.parameter("token");
                prop_assert!(given.and_then(percent_decode).is_none_or(|token| token.len() <= line.len()));
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
        assert_eq!((request.path, request.query, request.is_head), ("/a", "b", false));
        assert!(!format!("{request:?}").contains("geheim"));
    }
}
