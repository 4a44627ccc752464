//! Counter snapshots of another host, read repeatedly.

use horolog_sys::explain::explain;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use horolog_http::{Get, GetError, Url, get};

use crate::reader::SERVERS_TIMEOUT;
use crate::serve::JSON_PATH;
use crate::{CounterQuery, CounterSnapshot, Token};

/// Timeout of one reading: a trial waits for it.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
const _: () = assert!(SERVERS_TIMEOUT.as_millis() + 500 <= READ_TIMEOUT.as_millis());
/// Limit above the size of any host's snapshot.
const PAGE_BYTES_MAX: usize = 1 << 18;

/// Location of a counter snapshot.
#[derive(Debug)]
pub struct SnapshotLocation {
    url: String,
    address: SocketAddr,
    target: String,
    token: Token,
}

/// Reason why no snapshot could be read; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// Its name has no address.
    #[error("cannot resolve the host of {0}: {why}", why = explain(.1))]
    Unknown(String, #[source] io::Error),
    /// The server does not answer, or not with HTTP.
    #[error("no counters from {0}: {1}; check that 'horolog counters' runs there and is reachable")]
    NoResponse(String, #[source] GetError),
    /// The server rejected the token.
    #[error("{0} refused the token; use the one in the token file of 'horolog counters'")]
    Refused(String),
    /// The responder is another program.
    #[error("{0} is not a counter snapshot: {1}; use the URL that 'horolog counters' printed")]
    Other(String, String),
}

impl RemoteError {
    /// Returns true if another URL or token would help, rather than another environment.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Other(..))
    }
}

impl SnapshotLocation {
    /// The snapshot at `url`, to be read with `query`. Nothing is sent yet.
    pub fn new(url: &Url, token: Token, query: &CounterQuery) -> Result<Self, RemoteError> {
        let name = url.to_string();
        let address = url.resolve().map_err(|error| RemoteError::Unknown(name.clone(), error))?;
        let path = match url.path() {
            "" | "/" => JSON_PATH,
            path => path,
        };
        Ok(Self { url: name, address, target: format!("{path}?{query}"), token })
    }

    /// Its location.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Reads the snapshot.
    pub fn read(&self) -> Result<CounterSnapshot, RemoteError> {
        let response = get(&Get {
            address: self.address,
            target: &self.target,
            bearer: Some(self.token.expose()),
            within: READ_TIMEOUT,
            body_max: PAGE_BYTES_MAX,
        })
        .map_err(|error| RemoteError::NoResponse(self.url.clone(), error))?;
        let other = |why| RemoteError::Other(self.url.clone(), why);
        match response.code {
            200 => CounterSnapshot::parse(&response.body).map_err(other),
            401 | 403 => Err(RemoteError::Refused(self.url.clone())),
            code => Err(other(format!("it responds with status {code}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use horolog_http::HttpResponder;

    use super::*;
    use crate::{SCHEMA, answer};

    fn token(text: &str) -> Token {
        Token::parse(text).unwrap()
    }

    #[test]
    fn a_page_is_read_by_who_has_the_token() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let own = token("0123456789abcdef");
        let page = |query: &CounterQuery| CounterSnapshot {
            schema: SCHEMA.into(),
            read_at: query.to_string(),
            ..CounterSnapshot::default()
        };
        let responder =
            HttpResponder::start("pages", listener, move |request| answer(request, &own, page));
        let query = CounterQuery { address: None, port: Some(123) };
        let read = |url: &str, text: &str| {
            SnapshotLocation::new(&url.parse().unwrap(), token(text), &query).unwrap().read()
        };
        assert_eq!(read(&url, "0123456789abcdef").unwrap().read_at, "port=123");
        let refused = read(&url, "0123456789abcdex").unwrap_err();
        assert!(matches!(refused, RemoteError::Refused(_)) && refused.is_usage(), "{refused}");
        let other = read(&format!("{url}/metrics"), "0123456789abcdef").unwrap_err();
        assert!(other.to_string().contains("status 404"), "{other}");
        drop(responder);
        let no_response = read(&url, "0123456789abcdef").unwrap_err();
        assert!(
            matches!(no_response, RemoteError::NoResponse(..)) && !no_response.is_usage(),
            "{no_response}"
        );
    }
}
