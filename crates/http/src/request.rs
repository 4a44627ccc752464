//! A request as its bytes say it: pure. Of the header fields only the one is read that proves that
//! the asker may ask.

use crate::Answer;

/// A request for a page.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The path, without a query.
    pub path: &'a str,
    /// What follows the question mark; empty where nothing does.
    pub query: &'a str,
    /// The token of the field `Authorization: Bearer` (RFC 6750, section 2.1). It is a secret.
    pub bearer: Option<&'a [u8]>,
    /// Whether only the header of the answer is wanted.
    pub(crate) head: bool,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Whether a request is there to its empty line.
pub(crate) fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n")
        || request.windows(2).any(|two| two == b"\n\n")
}

impl<'a> Request<'a> {
    /// Reads a request that is there to its empty line. Whatever is none, or is for something else
    /// than a page, has a refusal.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Answer> {
        if !is_whole(bytes) {
            return Err(Answer::text(400, "the request has no end, or is too long\n"));
        }
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let line = std::str::from_utf8(lines.next().unwrap_or_default()).unwrap_or_default();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [method @ ("GET" | "HEAD"), target, version] if version.starts_with("HTTP/1.") => {
                let (path, query) = target.split_once('?').unwrap_or((target, ""));
                let bearer = lines.map_while(field).find_map(bearer);
                Ok(Self { path, query, bearer, head: method == "HEAD" })
            }
            [_, _, version] if version.starts_with("HTTP/1.") => {
                Err(Answer::text(405, "there is only GET\n"))
            }
            _ => Err(Answer::text(400, "this is no HTTP/1 request\n")),
        }
    }
}

/// A header field without its line's end; `None` at the empty line, which ends them.
fn field(line: &[u8]) -> Option<&[u8]> {
    let line = line.trim_ascii_end();
    (!line.is_empty()).then_some(line)
}

/// The token of a field that holds one. Names of fields and schemes have no case.
fn bearer(field: &[u8]) -> Option<&[u8]> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&field[..colon], field[colon + 1..].trim_ascii());
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    (name.eq_ignore_ascii_case(b"Authorization") && scheme.eq_ignore_ascii_case(b"Bearer "))
        .then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_its_own_field_only() {
        let read = |text: &'static str| Request::parse(text.as_bytes()).unwrap().bearer;
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
            Request::parse(b"GET /a?b HTTP/1.1\nAuthorization: Bearer geheim\n\n").unwrap();
        assert_eq!((request.path, request.query, request.head), ("/a", "b", false));
        assert!(!format!("{request:?}").contains("geheim"));
    }
}
