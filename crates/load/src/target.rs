//! What is to be loaded, and who may be: public addresses only by who says that they own them. The
//! way there is in [`route`].

mod route;

use std::net::IpAddr;

use horolog_sys::netlink::NetlinkError;
use thiserror::Error;

pub use horolog_io::target::{Family, TargetName, TargetNameError};
use horolog_io::target::{is_public, require_unicast};
pub use route::{Hints, Link, Macs, Route, find_route, scoped};

/// Why a target cannot be loaded.
#[derive(Debug, Error)]
pub enum TargetError {
    /// It has no address.
    #[error(transparent)]
    Name(#[from] TargetNameError),
    /// A public address, and nobody said that it may be loaded.
    #[error(
        "{0} is a public address; load only servers that are yours, and say so with \
         --i-own-this-target"
    )]
    Public(IpAddr),
    /// A link-local address means nothing without an interface.
    #[error("{0} is a link-local address; say on which interface with -i")]
    NeedsInterface(IpAddr),
    /// The interface cannot carry Ethernet frames.
    #[error(
        "interface '{0}' has no MAC address, so no frames can be built for it; use --engine udp"
    )]
    NoEthernet(String),
    /// The interface is not up.
    #[error("interface '{0}' is down; 'ip link set {0} up' brings it up")]
    Down(String),
    /// The kernel would not say how the target is reached.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The route exists and has no address of this host to send from.
    #[error("interface '{0}' has no address that could ask {1}; give it one")]
    NoSource(String, IpAddr),
}

/// Refuses addresses that are not one host's, and public ones unless `owned`.
pub fn permit(address: IpAddr, owned: bool) -> Result<(), TargetError> {
    require_unicast(address)?;
    if is_public(address) && !owned {
        return Err(TargetError::Public(address));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_targets_need_an_owner() {
        let (public, harmless) = ("8.8.8.8".parse().unwrap(), "10.0.0.1".parse().unwrap());
        assert!(matches!(permit(public, false), Err(TargetError::Public(_))));
        assert!(permit(public, true).is_ok() && permit(harmless, false).is_ok());
    }

    #[test]
    fn groups_are_never_loaded() {
        let refused = permit("224.0.1.1".parse().unwrap(), true);
        assert!(matches!(refused, Err(TargetError::Name(TargetNameError::NotUnicast(_)))));
    }
}
