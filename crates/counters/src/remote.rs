//! The page of another machine, asked for again and again.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use horolog_http::{Get, GetError, Url, get};

use crate::gather::SERVERS_PATIENCE;
use crate::serve::JSON_PATH;
use crate::{Page, Query, Token};

/// How long one reading may take: a trial waits for it.
const PATIENCE: Duration = Duration::from_secs(3);
const _: () = assert!(SERVERS_PATIENCE.as_millis() + 500 <= PATIENCE.as_millis());
/// More than any machine has to tell.
const PAGE_BYTES_MAX: usize = 1 << 18;

/// Where a page can be read.
#[derive(Debug)]
pub struct Remote {
    url: String,
    address: SocketAddr,
    target: String,
    token: Token,
}

/// Why there is no page; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// Its name has no address.
    #[error("the host of {0} cannot be found: {1}")]
    Unknown(String, #[source] io::Error),
    /// Nobody answers there, or not with HTTP.
    #[error("no counters from {0}: {1}; see that 'horolog counters' runs there and can be reached")]
    Silent(String, #[source] GetError),
    /// The token is not the page's.
    #[error("{0} refuses the token; give the one in the file that 'horolog counters' was given")]
    Refused(String),
    /// Somebody else answers.
    #[error("{0} is no page of counters: {1}; give the URL that 'horolog counters' printed")]
    Other(String, String),
}

impl RemoteError {
    /// Whether another URL or token would help, rather than another environment.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Other(..))
    }
}

impl Remote {
    /// The page at `url`, of which `query` is asked. Nothing is sent yet.
    pub fn new(url: &Url, token: Token, query: &Query) -> Result<Self, RemoteError> {
        let name = url.to_string();
        let address = url.resolve().map_err(|error| RemoteError::Unknown(name.clone(), error))?;
        let path = match url.path() {
            "" | "/" => JSON_PATH,
            path => path,
        };
        Ok(Self { url: name, address, target: format!("{path}?{query}"), token })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Reads the page.
    pub fn read(&self) -> Result<Page, RemoteError> {
        let response = get(&Get {
            address: self.address,
            target: &self.target,
            bearer: Some(self.token.expose()),
            within: PATIENCE,
            body_max: PAGE_BYTES_MAX,
        })
        .map_err(|error| RemoteError::Silent(self.url.clone(), error))?;
        let other = |why| RemoteError::Other(self.url.clone(), why);
        match response.code {
            200 => Page::parse(&response.body).map_err(other),
            401 | 403 => Err(RemoteError::Refused(self.url.clone())),
            code => Err(other(format!("it answers with status {code}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use horolog_http::Responder;

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
        let page = |query: &Query| Page {
            schema: SCHEMA.into(),
            read_at: query.to_string(),
            ..Page::default()
        };
        let responder =
            Responder::start("pages", listener, move |request| answer(request, &own, page));
        let query = Query { address: None, port: Some(123) };
        let read = |url: &str, text: &str| {
            Remote::new(&url.parse().unwrap(), token(text), &query).unwrap().read()
        };
        assert_eq!(read(&url, "0123456789abcdef").unwrap().read_at, "port=123");
        let refused = read(&url, "0123456789abcdex").unwrap_err();
        assert!(matches!(refused, RemoteError::Refused(_)) && refused.is_usage(), "{refused}");
        let other = read(&format!("{url}/metrics"), "0123456789abcdef").unwrap_err();
        assert!(other.to_string().contains("status 404"), "{other}");
        drop(responder);
        let silent = read(&url, "0123456789abcdef").unwrap_err();
        assert!(matches!(silent, RemoteError::Silent(..)) && !silent.is_usage(), "{silent}");
    }
}
