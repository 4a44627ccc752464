//! Query of a counter snapshot, which restricts it to one address and one port.

use std::fmt;
use std::net::IpAddr;

/// Selection of counters; without an address and a port, all counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CounterQuery {
    /// Only the interface that has this address.
    pub address: Option<IpAddr>,
    /// Only sockets bound to this port.
    pub port: Option<u16>,
}

/// Error of an invalid query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid query; use address=IP and port=NUMBER, or nothing")]
pub struct CounterQueryError;

impl CounterQuery {
    /// Parses the query of a URL, the text after the question mark.
    pub fn parse(text: &str) -> Result<Self, CounterQueryError> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').ok_or(CounterQueryError)? {
                ("address", value) if query.address.is_none() => {
                    query.address = Some(value.parse().map_err(|_| CounterQueryError)?);
                }
                ("port", value) if query.port.is_none() => {
                    query.port = Some(value.parse().map_err(|_| CounterQueryError)?);
                }
                _ => return Err(CounterQueryError),
            }
        }
        Ok(query)
    }
}

impl fmt::Display for CounterQuery {
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
                let query = CounterQuery { address, port };
                assert_eq!(CounterQuery::parse(&query.to_string()), Ok(query));
            }
        }
        for bad in ["x", "x=1", "port=", "port=65536", "address=a", "port=1&port=2"] {
            assert_eq!(CounterQuery::parse(bad), Err(CounterQueryError), "{bad}");
        }
    }
}
