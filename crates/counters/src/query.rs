//! What is asked of a page: counters of one address and one port, so that no more is told than is
//! wanted.

use std::fmt;
use std::net::IpAddr;

/// Which counters are wanted; all where nothing is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Query {
    /// Only the interface that has this address.
    pub address: Option<IpAddr>,
    /// Only sockets bound to this port.
    pub port: Option<u16>,
}

/// Why a text is no query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("ask with address=IP and port=NUMBER, or with nothing")]
pub struct QueryError;

impl Query {
    /// Reads what follows the question mark.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').ok_or(QueryError)? {
                ("address", value) if query.address.is_none() => {
                    query.address = Some(value.parse().map_err(|_| QueryError)?);
                }
                ("port", value) if query.port.is_none() => {
                    query.port = Some(value.parse().map_err(|_| QueryError)?);
                }
                _ => return Err(QueryError),
            }
        }
        Ok(query)
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.port) {
            (Some(address), Some(port)) => write!(f, "address={address}&port={port}"),
            (Some(address), None) => write!(f, "address={address}"),
            (None, Some(port)) => write!(f, "port={port}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for address in [None, Some([192, 0, 2, 1].into()), Some("2001:db8::1".parse().unwrap())] {
            for port in [None, Some(123)] {
                let query = Query { address, port };
                assert_eq!(Query::parse(&query.to_string()), Ok(query));
            }
        }
        for bad in ["x", "x=1", "port=", "port=65536", "address=a", "port=1&port=2"] {
            assert_eq!(Query::parse(bad), Err(QueryError), "{bad}");
        }
    }
}
