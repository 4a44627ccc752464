//! Drop of replies to simulated clients at tcx ingress while the `AF_PACKET` engine runs (Linux
//! 6.6). Without it the network stack drops them itself, because their addresses are not this
//! host's, but at a higher cost.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use libbpf_sys::BPF_TCX_INGRESS;
use zerocopy::{Immutable, IntoBytes};

use crate::XdpError;
use crate::attach::{self, Interface};
use crate::object::{self, LoadedBpfObject};

const NAME: &str = "reply_drop";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/reply_drop.o"));

/// Selection of the replies to drop.
#[derive(Clone, Debug)]
pub struct ReplyDropSettings {
    /// Interface by which the replies arrive.
    pub interface: Interface,
    /// Address of the target, which sends them.
    pub target: IpAddr,
    /// Source ports of the replies to drop: the NTP port, or both PTP ports.
    pub ports: RangeInclusive<u16>,
    /// Lowest address of the simulated clients' network, of the same IP version as the target.
    pub network: IpAddr,
    /// Length of the network's prefix, in bits.
    pub prefix_len: u8,
}

/// Attached program that drops the replies; dropping this value detaches it.
#[derive(Debug)]
pub struct ReplyDropProgram {
    _link: OwnedFd,
}

/// Read-only data of `reply_drop.bpf.c`. Addresses and mask of an IPv4 network are in the first
/// four bytes.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ReplyDropConstants {
    target: [u8; 16],
    network: [u8; 16],
    mask: [u8; 16],
    ports: [[u8; 2]; 2],
    ipv6: u32,
}

impl ReplyDropProgram {
    /// Loads the program and attaches it at tcx ingress of the interface.
    pub fn attach(settings: &ReplyDropSettings) -> Result<Self, XdpError> {
        let constants = ReplyDropConstants {
            target: to_padded_bytes(settings.target),
            network: to_padded_bytes(settings.network),
            mask: prefix_mask(settings.prefix_len),
            ports: [settings.ports.start(), settings.ports.end()].map(|port| port.to_ne_bytes()),
            ipv6: u32::from(settings.target.is_ipv6()),
        };
        let loaded = LoadedBpfObject::load(NAME, OBJECT, |open| {
            object::set_constants(open, NAME, constants.as_bytes())
        })?;
        let program = loaded.program("drop_replies")?;
        let link = attach::link(program, settings.interface.index, BPF_TCX_INGRESS, 0).map_err(
            |source| XdpError::Attach { interface: settings.interface.name.clone(), source },
        )?;
        Ok(Self { _link: link })
    }
}

/// Returns an address in 16 bytes; an IPv4 address is in the first four, the others are 0.
fn to_padded_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

fn prefix_mask(prefix_len: u8) -> [u8; 16] {
    u128::MAX.checked_shl(128_u32.saturating_sub(prefix_len.into())).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(prefix_mask(0), [0; 16]);
        assert_eq!(prefix_mask(128), [0xff; 16]);
        assert_eq!(prefix_mask(12)[..3], [0xff, 0xf0, 0]);
    }
}
