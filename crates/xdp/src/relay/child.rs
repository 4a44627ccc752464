//! Child of a group, and the table row with the headers of its copies.

use std::net::{IpAddr, SocketAddr};

use super::abi::ChildEntry;
use crate::Interface;

/// Child of a group: destination, source, egress interface and MAC addresses of its copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayChild {
    /// Destination of the copies; identifies the child within its group.
    pub destination: SocketAddr,
    /// Source of the copies: an address of this host, and a port.
    pub source: SocketAddr,
    /// Egress interface of the copies; `None` if there is no route to the child. Then no copies are
    /// made, and the missing ones count as [`interface_down`].
    ///
    /// [`interface_down`]: super::RelayChildCounts::interface_down
    pub interface: Option<Interface>,
    /// MAC address of the egress interface, the source of the copies.
    pub source_mac: [u8; 6],
    /// MAC address of the next hop; while it is unknown (`None`), copies are dropped and counted.
    pub next_hop: Option<[u8; 6]>,
}

impl RelayChild {
    pub(super) fn row(&self, number: u32) -> ChildEntry {
        let [source, destination] = [self.source.ip(), self.destination.ip()].map(to_padded_bytes);
        let [source_port, destination_port] =
            [self.source.port(), self.destination.port()].map(u16::to_be_bytes);
        ChildEntry {
            destination_mac: self.next_hop.unwrap_or_default(),
            source_mac: self.source_mac,
            source_port,
            destination_port,
            source,
            destination,
            address_sum: ones_complement_sum(&source) + ones_complement_sum(&destination),
            port_sum: ones_complement_sum(&source_port) + ones_complement_sum(&destination_port),
            child: number,
            unresolved: self.next_hop.is_none().into(),
        }
    }
}

/// Returns an address in 16 bytes; an IPv4 address is in the first four, the others are 0.
pub(super) fn to_padded_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns the sum of the bytes as 16-bit words in host byte order, not folded; an odd last byte is
/// ignored (RFC 1071: the byte order does not matter if all sums use the same).
fn ones_complement_sum(bytes: &[u8]) -> u32 {
    let (words, _) = bytes.as_chunks::<2>();
    words.iter().map(|&word| u32::from(u16::from_ne_bytes(word))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(destination: &str, next_hop: Option<[u8; 6]>) -> RelayChild {
        RelayChild {
            destination: destination.parse().unwrap(),
            source: "192.0.2.1:4000".parse().unwrap(),
            interface: Some(Interface { index: 2, name: "eth0".to_owned() }),
            source_mac: [2; 6],
            next_hop,
        }
    }

    #[test]
    fn a_row_has_the_addresses_as_they_stand_in_a_packet() {
        let row = child("192.0.2.9:5000", Some([4; 6])).row(7);
        assert_eq!(row.destination[..5], [192, 0, 2, 9, 0]);
        assert_eq!(row.source_port, [0x0f, 0xa0]);
        assert_eq!((row.child, row.unresolved), (7, 0));
        let words = [[192, 0], [2, 9], [192, 0], [2, 1]].map(u16::from_ne_bytes);
        assert_eq!(row.address_sum, words.into_iter().map(u32::from).sum());
        let ports = [[0x0f, 0xa0], [0x13, 0x88]].map(u16::from_ne_bytes);
        assert_eq!(row.port_sum, ports.into_iter().map(u32::from).sum());
    }

    #[test]
    fn a_child_whose_next_hop_is_not_known_is_marked() {
        assert_eq!(child("192.0.2.9:5000", None).row(0).unresolved, 1);
    }
}
