//! Target of a load, and permission to load it: public addresses require a declaration of
//! ownership. The route to it is in [`route`].

mod route;

use std::net::IpAddr;
use std::time::Duration;

use horolog_sys::netlink::NetlinkError;
use thiserror::Error;

pub use horolog_io::target::{AddressFamily, TargetName, TargetNameError};
use horolog_io::target::{is_public, require_unicast};
pub(crate) use route::return_route_command;
pub use route::{FirstLink, LinkMacs, Route, RouteHints, find_route};

/// Reason for which a target cannot be loaded.
#[derive(Debug, Error)]
pub enum TargetError {
    /// The name has no address.
    #[error(transparent)]
    Name(#[from] TargetNameError),
    /// A public address without a declaration of ownership.
    #[error(
        "{0} is a public address; load only your own servers, and confirm with --i-own-this-target"
    )]
    Public(IpAddr),
    /// The interface cannot carry Ethernet frames.
    #[error(
        "interface '{0}' has no MAC address, so it cannot send Ethernet frames; use --engine udp"
    )]
    NoEthernet(String),
    /// The interface is not up.
    #[error("interface '{0}' is down; run 'ip link set {0} up'")]
    Down(String),
    /// The target or the router to it did not answer neighbour resolution.
    #[error(
        "no MAC address for {address} on interface '{interface}' within {} ms; check that it is up \
         and on this link, or specify its MAC address",
        waited.as_millis()
    )]
    NoNeighbour {
        /// Target, or the router to it.
        address: IpAddr,
        /// Interface of the link.
        interface: String,
        /// Time waited for the answer.
        waited: Duration,
    },
    /// The kernel could not report the route.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The route has no address of this host to send from.
    #[error("interface '{0}' has no source address for {1}; add one")]
    NoSource(String, IpAddr),
}

/// Refuses addresses that are not one host's, and public ones unless `owned`.
pub fn check_permitted(address: IpAddr, owned: bool) -> Result<(), TargetError> {
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
        assert!(matches!(check_permitted(public, false), Err(TargetError::Public(_))));
        assert!(check_permitted(public, true).is_ok() && check_permitted(harmless, false).is_ok());
    }

    #[test]
    fn groups_are_never_loaded() {
        let refused = check_permitted("224.0.1.1".parse().unwrap(), true);
        assert!(matches!(refused, Err(TargetError::Name(TargetNameError::NotUnicast(_)))));
    }
}
