//! Parser of HTTP responses. Pure; the input is not trusted, and its size is limited.

/// Largest length of a header, in bytes; a longer one is rejected.
pub(crate) const HEADER_BYTES_MAX: usize = 8_192;

/// Response received by the client: status code and body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedHttpResponse {
    /// Status code (RFC 9110, section 15).
    pub code: u16,
    /// Body: the bytes after the empty line that ends the header.
    pub body: Vec<u8>,
}

/// Reason for which bytes are not a valid response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MalformedResponse {
    /// The status line or a header field is invalid, or the header does not end.
    #[error("not an HTTP response")]
    InvalidHeader,
    /// The response has a field `Transfer-Encoding`; no transfer coding is supported.
    #[error("its response uses an unsupported transfer coding")]
    UnsupportedCoding,
    /// The body is shorter than its `Content-Length`.
    #[error("its response is truncated")]
    Truncated,
    /// The body is longer than its `Content-Length` or the limit.
    #[error("its response is too long")]
    TooLong,
}

impl ReceivedHttpResponse {
    /// Parses all bytes that a server sent before it closed the connection, with a body of at most
    /// `body_max` bytes.
    pub fn parse(bytes: &[u8], body_max: usize) -> Result<Self, MalformedResponse> {
        let (header, body) = split_header(bytes).ok_or(MalformedResponse::InvalidHeader)?;
        let header = std::str::from_utf8(header).map_err(|_| MalformedResponse::InvalidHeader)?;
        let mut lines = header.lines();
        let code = parse_status_code(lines.next().unwrap_or_default())
            .ok_or(MalformedResponse::InvalidHeader)?;
        let mut content_length = None;
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(MalformedResponse::InvalidHeader)?;
            if name.eq_ignore_ascii_case("Transfer-Encoding") {
                return Err(MalformedResponse::UnsupportedCoding);
            }
            if name.eq_ignore_ascii_case("Content-Length") {
                let length: usize =
                    value.trim().parse().map_err(|_| MalformedResponse::InvalidHeader)?;
                if content_length.is_some_and(|before| before != length) {
                    return Err(MalformedResponse::InvalidHeader);
                }
                content_length = Some(length);
            }
        }
        if body.len() > content_length.unwrap_or(body.len()).min(body_max) {
            return Err(MalformedResponse::TooLong);
        }
        if content_length.is_some_and(|length| body.len() < length) {
            return Err(MalformedResponse::Truncated);
        }
        Ok(Self { code, body: body.to_owned() })
    }
}

/// Splits a response into header and body, without the empty line between them; `None` if no header
/// of at most [`HEADER_BYTES_MAX`] ends.
fn split_header(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
    let end = head.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((&bytes[..end], &bytes[end + 4..]))
}

/// Parses the three-digit status code of a status line of HTTP/1; `None` if the line is malformed.
fn parse_status_code(line: &str) -> Option<u16> {
    let (version, rest) = line.split_once(' ')?;
    let code = rest.get(..3).filter(|_| rest.len() == 3 || rest.as_bytes()[3] == b' ')?;
    (version.starts_with("HTTP/1.") && code.bytes().all(|digit| digit.is_ascii_digit()))
        .then(|| code.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::HttpResponse;

    #[test]
    fn answers_that_are_none() {
        let read = |text: &str| {
            ReceivedHttpResponse::parse(text.as_bytes(), 4).map(|response| response.code)
        };
        assert_eq!(read("HTTP/1.1 200\r\n\r\nabcd"), Ok(200));
        assert_eq!(
            read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd"),
            Err(MalformedResponse::Truncated)
        );
        assert_eq!(
            read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"),
            Err(MalformedResponse::TooLong)
        );
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nabcde"), Err(MalformedResponse::TooLong));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(read(chunked), Err(MalformedResponse::UnsupportedCoding));
        for bad in [
            "",
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 -20 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nno field\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
        ] {
            assert_eq!(read(bad), Err(MalformedResponse::InvalidHeader), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_answered_here_is_read_here(code in prop::sample::select(&[200, 401, 404, 503][..]), body in ".{0,300}") {
            let bytes = HttpResponse::text(code, body.clone()).to_bytes(true);
            let response = ReceivedHttpResponse::parse(&bytes, 1 << 12).unwrap();
            prop_assert_eq!((response.code, response.body), (code, body.into_bytes()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, header in "(HTTP/1.[01] [0-9]{3}( OK)?\r\n([A-Za-z-]{1,20}: [0-9a-z]{0,5}\r\n){0,3}\r\n)?") {
            let all = [header.as_bytes(), &bytes].concat();
            if let Ok(response) = ReceivedHttpResponse::parse(&all, 64) {
                prop_assert!(response.body.len() <= 64 && response.code <= 999);
            }
        }
    }
}
