//! Counter snapshots of another host, read repeatedly.

use horolog_sys::explain::explain;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use horolog_http::{GetError, GetRequest, Url, get};

use crate::reader::SERVERS_TIMEOUT;
use crate::serve::JSON_PATH;
use crate::{BearerToken, CounterQuery, CounterSnapshot};

/// Timeout of one request. A trial waits for the response.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
const _: () = assert!(SERVERS_TIMEOUT.as_millis() + 500 <= READ_TIMEOUT.as_millis());
/// Size limit of a response body, in bytes; larger than the snapshot of any host.
const SNAPSHOT_BYTES_MAX: usize = 1 << 18;

/// Location of a remote host's counter snapshot: URL, resolved address, and token.
#[derive(Debug)]
pub struct SnapshotLocation {
    url: String,
    address: SocketAddr,
    target: String,
    token: BearerToken,
}

/// Reason why no snapshot could be read; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum RemoteSnapshotError {
    /// The host name of the URL cannot be resolved.
    #[error("cannot resolve the host of {0}: {why}", why = explain(.1))]
    UnresolvedHost(String, #[source] io::Error),
    /// The server at the URL sent no valid HTTP response.
    #[error("no counters from {0}: {1}; check that 'horolog counters' runs there and is reachable")]
    NoResponse(String, #[source] GetError),
    /// The server rejected the token.
    #[error("{0} refused the token; use the one in the token file of 'horolog counters'")]
    TokenRefused(String),
    /// The response is not a counter snapshot; the second text is the reason.
    #[error("{0} is not a counter snapshot: {1}; use the URL that 'horolog counters' printed")]
    NotASnapshot(String, String),
}

impl RemoteSnapshotError {
    /// Returns true if the token was refused or the response is not a counter snapshot, as opposed
    /// to a failure of the network or of name resolution.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::TokenRefused(_) | Self::NotASnapshot(..))
    }
}

impl SnapshotLocation {
    /// Resolves the host of `url`, for requests with this query. A URL without a path means the
    /// snapshot in JSON. Sends no request yet.
    pub fn new(
        url: &Url,
        token: BearerToken,
        query: &CounterQuery,
    ) -> Result<Self, RemoteSnapshotError> {
        let name = url.to_string();
        let address = url
            .resolve()
            .map_err(|error| RemoteSnapshotError::UnresolvedHost(name.clone(), error))?;
        let path = match url.path() {
            "" | "/" => JSON_PATH,
            path => path,
        };
        Ok(Self { url: name, address, target: format!("{path}?{query}"), token })
    }

    /// Returns the URL as passed to [`SnapshotLocation::new`], without the query.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests the snapshot and waits for it, at most [`READ_TIMEOUT`].
    pub fn read(&self) -> Result<CounterSnapshot, RemoteSnapshotError> {
        let response = get(&GetRequest {
            address: self.address,
            target: &self.target,
            bearer: Some(self.token.expose()),
            timeout: READ_TIMEOUT,
            body_max: SNAPSHOT_BYTES_MAX,
        })
        .map_err(|error| RemoteSnapshotError::NoResponse(self.url.clone(), error))?;
        let not_a_snapshot = |why| RemoteSnapshotError::NotASnapshot(self.url.clone(), why);
        match response.code {
            200 => CounterSnapshot::parse(&response.body).map_err(not_a_snapshot),
            401 | 403 => Err(RemoteSnapshotError::TokenRefused(self.url.clone())),
            code => Err(not_a_snapshot(format!("it responds with status {code}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use horolog_http::HttpResponder;

    use super::*;
    use crate::{SCHEMA, respond};

    fn token(text: &str) -> BearerToken {
        BearerToken::parse(text).unwrap()
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
            HttpResponder::start("pages", listener, move |request| respond(request, &own, page));
        let query = CounterQuery { address: None, port: Some(123) };
        let read = |url: &str, text: &str| {
            SnapshotLocation::new(&url.parse().unwrap(), token(text), &query).unwrap().read()
        };
        assert_eq!(read(&url, "0123456789abcdef").unwrap().read_at, "port=123");
        let refused = read(&url, "0123456789abcdex").unwrap_err();
        assert!(
            matches!(refused, RemoteSnapshotError::TokenRefused(_)) && refused.is_usage(),
            "{refused}"
        );
        let other = read(&format!("{url}/metrics"), "0123456789abcdef").unwrap_err();
        assert!(other.to_string().contains("status 404"), "{other}");
        drop(responder);
        let no_response = read(&url, "0123456789abcdef").unwrap_err();
        assert!(
            matches!(no_response, RemoteSnapshotError::NoResponse(..)) && !no_response.is_usage(),
            "{no_response}"
        );
    }
}
