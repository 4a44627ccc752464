//! IP network of a list of sources or destinations, as text in files and messages.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use horolog_wire::prefix::{Prefix, PrefixError};
use serde::{Deserialize, Serialize};

/// Network such as `192.0.2.0/24`, or one address. The bits after the prefix are cleared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpNetwork(Prefix);

impl IpNetwork {
    /// Returns true if the network contains `address`; never one of the other IP version.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }
}

impl IpNetwork {
    pub(crate) const fn prefix(self) -> Prefix {
        self.0
    }
}

impl FromStr for IpNetwork {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(Self(Prefix::host(address))),
            Err(_) => text.parse().map(|prefix: Prefix| Self(prefix.network())),
        }
    }
}

impl TryFrom<String> for IpNetwork {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Self, PrefixError> {
        text.parse()
    }
}

impl From<IpNetwork> for String {
    fn from(network: IpNetwork) -> Self {
        network.to_string()
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_single_addresses_are_read() {
        for (text, shown) in [
            ("192.0.2.77/24", "192.0.2.0/24"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<IpNetwork>().unwrap().to_string(), shown);
        }
        for bad in ["", "example", "192.0.2.0/33", "192.0.2/24"] {
            assert!(bad.parse::<IpNetwork>().is_err(), "{bad}");
        }
    }
}
