//! Parser of a response: pure and bounded. Its input is not trusted.

/// Greatest length of a header; a longer one is rejected.
pub(crate) const HEADER_BYTES_MAX: usize = 8_192;

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientResponse {
    /// The status code (RFC 9110, section 15).
    pub code: u16,
    /// The bytes after the header.
    pub body: Vec<u8>,
}

/// Reason why bytes are not a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MalformedResponse {
    /// It does not begin as a response, or its header does not end.
    #[error("not an HTTP response")]
    Header,
    /// The coding of the body is not supported.
    #[error("its response uses an unsupported transfer coding")]
    Coding,
    /// The body is shorter than announced.
    #[error("its response is truncated")]
    Short,
    /// The body is longer than announced or allowed.
    #[error("its response is too long")]
    Long,
}

impl ClientResponse {
    /// Reads the bytes of a whole connection, with a body of `body_max` bytes at most.
    pub fn parse(bytes: &[u8], body_max: usize) -> Result<Self, MalformedResponse> {
        let (header, body) = split(bytes).ok_or(MalformedResponse::Header)?;
        let header = std::str::from_utf8(header).map_err(|_| MalformedResponse::Header)?;
        let mut lines = header.lines();
        let code = code(lines.next().unwrap_or_default()).ok_or(MalformedResponse::Header)?;
        let mut announced = None;
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(MalformedResponse::Header)?;
            if name.eq_ignore_ascii_case("Transfer-Encoding") {
                return Err(MalformedResponse::Coding);
            }
            if name.eq_ignore_ascii_case("Content-Length") {
                let length: usize = value.trim().parse().map_err(|_| MalformedResponse::Header)?;
                if announced.is_some_and(|before| before != length) {
                    return Err(MalformedResponse::Header);
                }
                announced = Some(length);
            }
        }
        if body.len() > announced.unwrap_or(body.len()).min(body_max) {
            return Err(MalformedResponse::Long);
        }
        if announced.is_some_and(|length| body.len() < length) {
            return Err(MalformedResponse::Short);
        }
        Ok(Self { code, body: body.to_owned() })
    }
}

/// Header and body, without the empty line between them.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
    let end = head.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((&bytes[..end], &bytes[end + 4..]))
}

/// The status code of a status line.
fn code(line: &str) -> Option<u16> {
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
        let read =
            |text: &str| ClientResponse::parse(text.as_bytes(), 4).map(|response| response.code);
        assert_eq!(read("HTTP/1.1 200\r\n\r\nabcd"), Ok(200));
        assert_eq!(
            read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd"),
            Err(MalformedResponse::Short)
        );
        assert_eq!(
            read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"),
            Err(MalformedResponse::Long)
        );
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nabcde"), Err(MalformedResponse::Long));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(read(chunked), Err(MalformedResponse::Coding));
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
            assert_eq!(read(bad), Err(MalformedResponse::Header), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_answered_here_is_read_here(code in prop::sample::select(&[200, 401, 404, 503][..]), body in ".{0,300}") {
            let bytes = HttpResponse::text(code, body.clone()).to_bytes(true);
            let response = ClientResponse::parse(&bytes, 1 << 12).unwrap();
            prop_assert_eq!((response.code, response.body), (code, body.into_bytes()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, header in "(HTTP/1.[01] [0-9]{3}( OK)?\r\n([A-Za-z-]{1,20}: [0-9a-z]{0,5}\r\n){0,3}\r\n)?") {
            let all = [header.as_bytes(), &bytes].concat();
            if let Ok(response) = ClientResponse::parse(&all, 64) {
                prop_assert!(response.body.len() <= 64 && response.code <= 999);
            }
        }
    }
}
