//! Listen addresses of a server, and the set of concrete addresses at which it answers, fast enough
//! to query for every packet. XDP has no wildcard addresses: a program cannot tell which
//! destinations are this host's, and would also answer packets that are to be forwarded.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use horolog_sys::netlink::VlanId;
use horolog_time::leap::LeapSecondRepresentation;
use horolog_wire::ethernet::{MacAddress, VlanTag};
use horolog_wire::prefix::Prefix;

/// Concrete addresses and ports at which requests are answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListenAddressSet {
    addresses: Vec<SocketAddr>,
    /// Subset of the addresses, at which smeared time is served.
    smeared: Vec<SocketAddr>,
    /// Broadcast addresses of this host's networks, which are never answered.
    broadcasts: Vec<Ipv4Addr>,
    /// MAC addresses of this host, with the VLAN of each.
    stations: Vec<(Option<VlanId>, MacAddress)>,
}

impl ListenAddressSet {
    /// Returns the set for listen addresses, restricted to the addresses `local` of this host. A
    /// wildcard (`0.0.0.0` or `::`) stands for all of its IP version. Loopback addresses are
    /// excluded, because no packets for them arrive on a link (RFC 1122, section 3.2.1.3; RFC 4291,
    /// section 2.5.3).
    #[must_use]
    pub fn resolve(listen: &[SocketAddr], local: &[IpAddr]) -> Self {
        let mut addresses: Vec<SocketAddr> =
            listen.iter().flat_map(|address| concrete_addresses(*address, local)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self { addresses, ..Self::default() }
    }

    /// Returns the set with the broadcast addresses of these networks of this host, in place of
    /// earlier ones.
    #[must_use]
    pub fn with_networks(mut self, networks: &[Prefix]) -> Self {
        self.broadcasts = networks.iter().filter_map(Prefix::broadcast).collect();
        self
    }

    /// Returns the set with these MAC addresses of this host, each in its VLAN or in none, in place
    /// of earlier ones.
    #[must_use]
    pub fn with_stations(mut self, stations: &[(Option<VlanId>, MacAddress)]) -> Self {
        self.stations = stations.to_vec();
        self
    }

    /// Returns the set with further listen addresses, at which smeared time is served; they are
    /// resolved as by [`ListenAddressSet::resolve`].
    #[must_use]
    pub fn with_smeared(mut self, listen: &[SocketAddr], local: &[IpAddr]) -> Self {
        self.smeared = Self::resolve(listen, local).addresses;
        self.addresses.extend_from_slice(&self.smeared);
        self.addresses.sort_unstable();
        self.addresses.dedup();
        self
    }

    /// Returns the timeline served at this address: smeared if the address is among those of
    /// smeared time, otherwise stepped.
    #[must_use]
    pub fn timeline(&self, at: SocketAddr) -> LeapSecondRepresentation {
        let is_same =
            |address: &&SocketAddr| address.ip() == at.ip() && address.port() == at.port();
        self.smeared
            .iter()
            .find(is_same)
            .map_or(LeapSecondRepresentation::Stepped, |_| LeapSecondRepresentation::Smeared)
    }

    /// Returns true if packets to this address and port are answered. Scope and flow label are
    /// ignored.
    #[must_use]
    pub fn contains(&self, ip: IpAddr, port: u16) -> bool {
        self.addresses.iter().any(|address| address.ip() == ip && address.port() == port)
    }

    /// Returns true if this host accepts frames with this VLAN tag and destination. Identifier 0
    /// stands for no VLAN: the tag only carries a priority (IEEE 802.1Q, section 9.6).
    #[must_use]
    pub fn has_station(&self, tag: Option<VlanTag>, mac: MacAddress) -> bool {
        let vlan = tag
            .map(|VlanTag { protocol, control }| VlanId { protocol, identifier: control & 0x0fff });
        self.stations.contains(&(vlan.filter(|vlan| vlan.identifier != 0), mac))
    }

    /// Returns true if the address is the broadcast address of one of this host's networks.
    #[must_use]
    pub fn is_broadcast(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(ip) if self.broadcasts.contains(&ip))
    }

    /// Returns the addresses, sorted and without duplicates.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

fn concrete_addresses(listen: SocketAddr, local: &[IpAddr]) -> impl Iterator<Item = SocketAddr> {
    let is_meant = move |ip: &IpAddr| match listen.ip() {
        any if any.is_unspecified() => ip.is_ipv4() == any.is_ipv4() && !ip.is_unspecified(),
        one => *ip == one,
    };
    local
        .iter()
        .copied()
        .filter(move |ip| !ip.is_loopback() && is_meant(ip))
        .map(move |ip| SocketAddr::new(ip, listen.port()))
}

/// Listen addresses, by timeline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ListenAddressesByTimeline {
    /// Addresses at which stepped UTC is served.
    pub(crate) stepped: Vec<SocketAddr>,
    /// Addresses at which smeared UTC is served.
    pub(crate) smeared: Vec<SocketAddr>,
}

impl ListenAddressesByTimeline {
    /// Returns all listen addresses, those of stepped UTC first.
    pub(crate) fn all_addresses(&self) -> Vec<SocketAddr> {
        [&self.stepped[..], &self.smeared].concat()
    }
}

/// Listen addresses, which a reload replaces.
pub(crate) type SharedListenAddresses = Arc<ArcSwap<ListenAddressesByTimeline>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_wildcard_stands_for_the_local_addresses_of_its_family() {
        let local = ["10.0.0.1", "fd00::1", "127.0.0.1", "10.0.0.2", "::1"];
        let local = local.map(|text| text.parse().unwrap());
        let set = ListenAddressSet::resolve(&addresses(&["0.0.0.0:123"]), &local);
        assert_eq!(set.addresses(), addresses(&["10.0.0.1:123", "10.0.0.2:123"]));
        let set = ListenAddressSet::resolve(
            &addresses(&["[::]:123", "10.0.0.2:456", "10.0.0.9:456"]),
            &local,
        );
        assert!(set.contains("fd00::1".parse().unwrap(), 123));
        assert!(set.contains("10.0.0.2".parse().unwrap(), 456));
        assert!(!set.contains("10.0.0.2".parse().unwrap(), 123));
        assert!(!set.contains("10.0.0.9".parse().unwrap(), 456), "an address that moved away");
        assert!(!set.contains("::1".parse().unwrap(), 123), "loopback");
        assert!(!set.contains("10.0.0.1".parse().unwrap(), 123));
    }

    #[test]
    fn each_address_has_its_timeline() {
        let local = ["10.0.0.1".parse().unwrap()];
        let set = ListenAddressSet::resolve(&addresses(&["0.0.0.0:123"]), &local)
            .with_smeared(&addresses(&["0.0.0.0:124"]), &local);
        assert_eq!(set.addresses(), addresses(&["10.0.0.1:123", "10.0.0.1:124"]));
        let timelines: Vec<_> = set.addresses().iter().map(|at| set.timeline(*at)).collect();
        assert_eq!(
            timelines,
            [LeapSecondRepresentation::Stepped, LeapSecondRepresentation::Smeared]
        );
        assert!(set.contains("10.0.0.1".parse().unwrap(), 124));
    }

    #[test]
    fn stations_and_broadcast_addresses_are_those_of_this_machine() {
        let networks = ["10.0.0.1/24", "10.9.0.0/31", "10.8.0.1/32", "fd00::1/64"];
        let networks = networks.map(|text| text.parse().unwrap());
        let vlan = VlanId { protocol: 0x8100, identifier: 7 };
        let (mac, vlan_mac) = (MacAddress([2; 6]), MacAddress([4; 6]));
        let stations = [(None, mac), (Some(vlan), vlan_mac)];
        let set = ListenAddressSet::default().with_networks(&networks).with_stations(&stations);
        for (ip, is_broadcast) in [
            ("10.0.0.255", true),
            ("10.0.0.1", false),
            ("10.9.0.1", false),
            ("10.8.0.1", false),
            ("fd00::ffff:ffff:ffff:ffff", false),
        ] {
            assert_eq!(set.is_broadcast(ip.parse().unwrap()), is_broadcast, "{ip}");
        }
        let tagged =
            |protocol, control, mac| set.has_station(Some(VlanTag { protocol, control }), mac);
        assert!(set.has_station(None, mac) && !set.has_station(None, vlan_mac));
        assert!(tagged(0x8100, 0x6007, vlan_mac) && !tagged(0x8100, 0x6007, mac));
        assert!(tagged(0x8100, 0x6000, mac) && tagged(0x88a8, 0, mac));
        assert!(!tagged(0x8100, 0x6008, vlan_mac) && !tagged(0x88a8, 7, vlan_mac));
    }

    #[test]
    fn no_wildcard_is_left_in_the_set() {
        let set = ListenAddressSet::resolve(&addresses(&["0.0.0.0:123", "[::]:123"]), &[]);
        assert!(set.addresses().is_empty());
        assert!(!set.contains("0.0.0.0".parse().unwrap(), 123));
    }

    #[test]
    fn a_scope_does_not_hide_an_address() {
        let scoped = "[fe80::1%3]:123".parse().unwrap();
        let set = ListenAddressSet::resolve(&[scoped], &["fe80::1".parse().unwrap()]);
        assert!(set.contains("fe80::1".parse().unwrap(), 123));
    }
}
