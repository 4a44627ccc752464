//! The addresses that a server answers at, as a set that can be asked for every packet. It holds
//! concrete addresses only: below the sockets nobody knows which destinations are this machine's,
//! and a wildcard there would answer packets that are only passing through.

use std::net::{IpAddr, SocketAddr};

use horolog_time::leap::Timeline;

/// Concrete addresses and ports, each port with the addresses that it is open on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListenSet {
    addresses: Vec<SocketAddr>,
    /// Those of them where smeared time is served.
    smeared: Vec<SocketAddr>,
}

impl ListenSet {
    /// The set for the addresses listened on, as far as they are among `local`, this
    /// machine's own. A wildcard (`0.0.0.0` or `::`) stands for those of its family. Loopback
    /// addresses are left out: nothing for them comes over a link (RFC 1122, section 3.2.1.3;
    /// RFC 4291, section 2.5.3).
    #[must_use]
    pub fn resolve(listen: &[SocketAddr], local: &[IpAddr]) -> Self {
        let mut addresses: Vec<SocketAddr> =
            listen.iter().flat_map(|address| concrete(*address, local)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self { addresses, smeared: Vec::new() }
    }

    /// The same with further addresses, at which smeared time is served.
    #[must_use]
    pub fn with_smeared(mut self, listen: &[SocketAddr], local: &[IpAddr]) -> Self {
        self.smeared = Self::resolve(listen, local).addresses;
        self.addresses.extend_from_slice(&self.smeared);
        self.addresses.sort_unstable();
        self.addresses.dedup();
        self
    }

    /// What is served at one of the addresses.
    #[must_use]
    pub fn timeline(&self, at: SocketAddr) -> Timeline {
        let is_meant =
            |address: &&SocketAddr| address.ip() == at.ip() && address.port() == at.port();
        self.smeared.iter().find(is_meant).map_or(Timeline::Stepped, |_| Timeline::Smeared)
    }

    /// Whether a packet to this address and port is for the server. Scope and flow label do not
    /// count.
    #[must_use]
    pub fn contains(&self, ip: IpAddr, port: u16) -> bool {
        self.addresses.iter().any(|address| address.ip() == ip && address.port() == port)
    }

    /// The addresses, sorted, each once.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

fn concrete(listen: SocketAddr, local: &[IpAddr]) -> impl Iterator<Item = SocketAddr> {
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
        let set = ListenSet::resolve(&addresses(&["0.0.0.0:123"]), &local);
        assert_eq!(set.addresses(), addresses(&["10.0.0.1:123", "10.0.0.2:123"]));
        let set =
            ListenSet::resolve(&addresses(&["[::]:123", "10.0.0.2:456", "10.0.0.9:456"]), &local);
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
        let set = ListenSet::resolve(&addresses(&["0.0.0.0:123"]), &local)
            .with_smeared(&addresses(&["0.0.0.0:124"]), &local);
        assert_eq!(set.addresses(), addresses(&["10.0.0.1:123", "10.0.0.1:124"]));
        let timelines: Vec<_> = set.addresses().iter().map(|at| set.timeline(*at)).collect();
        assert_eq!(timelines, [Timeline::Stepped, Timeline::Smeared]);
        assert!(set.contains("10.0.0.1".parse().unwrap(), 124));
    }

    #[test]
    fn no_wildcard_is_left_in_the_set() {
        let set = ListenSet::resolve(&addresses(&["0.0.0.0:123", "[::]:123"]), &[]);
        assert!(set.addresses().is_empty());
        assert!(!set.contains("0.0.0.0".parse().unwrap(), 123));
    }

    #[test]
    fn a_scope_does_not_hide_an_address() {
        let scoped = "[fe80::1%3]:123".parse().unwrap();
        let set = ListenSet::resolve(&[scoped], &["fe80::1".parse().unwrap()]);
        assert!(set.contains("fe80::1".parse().unwrap(), 123));
    }
}
