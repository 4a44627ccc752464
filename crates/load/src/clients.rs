//! Numbers, lanes and addresses of clients, and the networks from which simulated clients may send.
//! Does no I/O.
//!
//! A lane is one sending thread. Its sequence numbers determine which client sends each request, so
//! the client of a reply can be verified. The XDP engine numbers clients in the same way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use horolog_wire::prefix::Prefix;
use thiserror::Error;

use crate::token::SEQUENCE_BITS;

/// UDP source port of lane 0; lane `l` uses `FIRST_PORT + l`.
pub const FIRST_PORT: u16 = 32_768;

/// Most lanes whose ports fit below 65,536.
pub const LANES_MAX: usize = 32_768;

/// Largest number of simulated clients with an identity of their own; random sources may be more.
pub const CLIENTS_MAX: u32 = 1_000_000;

/// Returns the UDP source port of a lane below [`LANES_MAX`].
#[must_use]
pub const fn source_port(lane: usize) -> u16 {
    FIRST_PORT + lane as u16
}

/// Networks that are not routed on the Internet (private, link-local, documentation, loopback), so
/// that replies to a simulated address in them reach no third party.
const UNROUTED_NETWORKS: [(IpAddr, u8); 12] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8), // RFC 1918
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12), // RFC 1918
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16), // RFC 1918
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16), // RFC 3927
    (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0)), 24), // RFC 5737
    (IpAddr::V4(Ipv4Addr::new(198, 51, 100, 0)), 24), // RFC 5737
    (IpAddr::V4(Ipv4Addr::new(203, 0, 113, 0)), 24), // RFC 5737
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8), // RFC 1122
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7), // RFC 4193
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10), // RFC 4291
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0)), 32), // RFC 3849
    (IpAddr::V6(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0)), 20), // RFC 9637
];

/// Default networks of simulated clients, in order of preference.
const DEFAULT_NETWORKS: [(IpAddr, u8); 5] = [
    (IpAddr::V4(Ipv4Addr::new(10, 64, 0, 0)), 10),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(10, 128, 0, 0)), 9),
    (IpAddr::V6(Ipv6Addr::new(0xfdfe, 0x686f, 0x726f, 0x6c6f, 0, 0, 0, 0)), 96),
    (IpAddr::V6(Ipv6Addr::new(0xfdff, 0x686f, 0x726f, 0x6c6f, 0, 0, 0, 0)), 96),
];

/// Reason for which the requested clients cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SimulatedClientsError {
    /// Replies could reach other hosts.
    #[error(
        "{0} is not a private, link-local, documentation or loopback network, so replies could \
         reach third parties; choose a network such as 10.64.0.0/10 or fd00::/8"
    )]
    PublicNetwork(Prefix),
    /// Clients and target use different versions of IP.
    #[error("clients from {network} cannot send to {target}; use IPv4 for both or IPv6 for both")]
    Family {
        /// Network of the clients.
        network: Prefix,
        /// Target address.
        target: IpAddr,
    },
    /// The network contains an address that is in use: the target's, or one of this host.
    #[error("{network} contains {address}, which is {whose}; choose another network")]
    Overlap {
        /// Network of the clients.
        network: Prefix,
        /// Address in use.
        address: IpAddr,
        /// Owner of the address, in words.
        whose: &'static str,
    },
    /// More clients than addresses in the network.
    #[error(
        "{network} has addresses for {room} clients, not for {requested}; choose a wider \
             network"
    )]
    NoRoom {
        /// Network of the clients.
        network: Prefix,
        /// Number of clients that fit into the network.
        room: u32,
        /// Clients requested.
        requested: u32,
    },
    /// Number of clients out of range.
    #[error(
        "the number of clients must be from {lanes} (one for each thread) to {max}, not {requested}"
    )]
    Count {
        /// Clients requested.
        requested: u32,
        /// Number of sending threads, the lower limit.
        lanes: usize,
        /// Upper limit.
        max: u32,
    },
    /// Every default network contains a real address.
    #[error("no network for simulated clients is unused; name one with its prefix length")]
    NoDefault,
}

/// A network whose addresses serve as simulated sources of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimulatedClientNetwork {
    network: Prefix,
}

impl SimulatedClientNetwork {
    /// Checks that clients from `network` may send requests to `target`. The network must not be
    /// routed on the Internet, must have the target's address family, and must contain neither the
    /// target nor an address of this host (`local`).
    pub fn new(
        network: Prefix,
        target: IpAddr,
        local: &[IpAddr],
    ) -> Result<Self, SimulatedClientsError> {
        let network = network.network();
        if network.address().is_ipv4() != target.is_ipv4() {
            return Err(SimulatedClientsError::Family { network, target });
        }
        if !UNROUTED_NETWORKS.iter().any(|&known| covers(known, network)) {
            return Err(SimulatedClientsError::PublicNetwork(network));
        }
        let overlap =
            |address, whose| Err(SimulatedClientsError::Overlap { network, address, whose });
        if network.contains(target) {
            return overlap(target, "the target's own address");
        }
        if let Some(&address) = local.iter().find(|&&address| network.contains(address)) {
            return overlap(address, "an address of this host");
        }
        Ok(Self { network })
    }

    /// Returns the first default network that contains neither the target nor an address in
    /// `local`.
    pub fn find(target: IpAddr, local: &[IpAddr]) -> Result<Self, SimulatedClientsError> {
        DEFAULT_NETWORKS
            .iter()
            .filter_map(|&(address, length)| Prefix::new(address, length).ok())
            .find_map(|network| Self::new(network, target, local).ok())
            .ok_or(SimulatedClientsError::NoDefault)
    }

    /// Returns the last part of this network that has room for `clients` and does not overlap the
    /// first `reserved` addresses.
    pub fn last_subnet(&self, clients: u32, reserved: u32) -> Result<Self, SimulatedClientsError> {
        let network = self.network;
        let no_room = SimulatedClientsError::NoRoom {
            network,
            room: self.host_count(),
            requested: reserved.saturating_add(clients),
        };
        let width: u8 = if network.address().is_ipv4() { 32 } else { 128 };
        let host_bits = (width - network.length()).min(32);
        // The first and the last address are not host addresses.
        let bits = (clients.saturating_add(2)).next_power_of_two().trailing_zeros();
        let begin = (1_u64 << host_bits).checked_sub(1 << bits);
        let begin = begin.filter(|begin| *begin > u64::from(reserved)).ok_or(no_room)?;
        let low = self.base().wrapping_add(begin as u32);
        let address = match network.address() {
            IpAddr::V4(_) => Ipv4Addr::from_bits(low).into(),
            IpAddr::V6(address) => {
                let high = address.to_bits() & !u128::from(u32::MAX);
                Ipv6Addr::from_bits(high | u128::from(low)).into()
            }
        };
        // The length is at most that of an address, so the prefix is valid.
        Prefix::new(address, width - bits as u8)
            .map(|network| Self { network })
            .map_err(|_| SimulatedClientsError::NoDefault)
    }

    /// Returns subnet `index` of this network, split into `count` equal subnets (rounded up to a
    /// power of two). An error if a subnet would have no host address.
    pub fn subnet(&self, index: usize, count: usize) -> Result<Self, SimulatedClientsError> {
        let bits = count.next_power_of_two().trailing_zeros() as u8;
        let (width, host): (u8, u128) = match self.network.address() {
            IpAddr::V4(address) => (32, address.to_bits().into()),
            IpAddr::V6(address) => (128, address.to_bits()),
        };
        let length = self.network.length() + bits;
        // A subnet needs a network address, a broadcast address and at least one host address.
        if width.saturating_sub(length) < 2 {
            let (network, room) = (self.network, self.host_count());
            return Err(SimulatedClientsError::NoRoom { network, room, requested: count as u32 });
        }
        let address = host | (index as u128) << (width - length);
        let address = match self.network.address() {
            IpAddr::V4(_) => Ipv4Addr::from_bits(address as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(address).into(),
        };
        // The length is at most that of an address, so the prefix is valid.
        Prefix::new(address, length)
            .map(|network| Self { network })
            .map_err(|_| SimulatedClientsError::NoDefault)
    }

    /// Returns the network prefix; its host bits are 0.
    #[must_use]
    pub const fn prefix(&self) -> Prefix {
        self.network
    }

    /// Returns the number of host addresses, at most 2^32 − 2. The first and last address of the
    /// network are excluded, except in a network of two addresses (RFC 3021) or one.
    #[must_use]
    pub fn host_count(&self) -> u32 {
        match self.host_bits() {
            bits @ 0..=1 => 1 << bits,
            bits => ((1_u64 << bits) - 2) as u32,
        }
    }

    /// Returns the number of host bits of an address, at most 32.
    fn host_bits(&self) -> u32 {
        let width = if self.network.address().is_ipv4() { 32 } else { 128 };
        u32::from(width - self.network.length()).min(32)
    }

    /// Returns the low 32 bits of the address before that of client 0. Client `c` has the address
    /// `base + 1 + c`.
    #[must_use]
    pub fn base(&self) -> u32 {
        let first = low_bits(self.network.address());
        if self.host_bits() < 2 { first.wrapping_sub(1) } else { first }
    }

    /// Returns the range of the addresses of `clients` clients; that of client 0 if `clients` is 0.
    #[must_use]
    pub fn addresses(&self, clients: u32) -> RangeInclusive<IpAddr> {
        self.address(0)..=self.address(clients.saturating_sub(1))
    }

    /// Returns the address of client `client`.
    #[must_use]
    pub fn address(&self, client: u32) -> IpAddr {
        let low = self.base().wrapping_add(1).wrapping_add(client);
        match self.network.address() {
            IpAddr::V4(_) => Ipv4Addr::from_bits(low).into(),
            IpAddr::V6(address) => {
                let high = address.to_bits() & !u128::from(u32::MAX);
                Ipv6Addr::from_bits(high | u128::from(low)).into()
            }
        }
    }

    /// Returns the client number of an address; `None` if no client number gives this address. The
    /// number may exceed the number of clients in use.
    #[must_use]
    pub fn client_of(&self, address: IpAddr) -> Option<u32> {
        let number = low_bits(address).wrapping_sub(self.base()).wrapping_sub(1);
        (self.network.contains(address) && self.address(number) == address).then_some(number)
    }
}

/// Returns the low 32 bits of an address: all of an IPv4 address.
const fn low_bits(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => address.to_bits() as u32,
    }
}

fn covers((address, length): (IpAddr, u8), network: Prefix) -> bool {
    network.length() >= length
        && Prefix::new(address, length).is_ok_and(|known| known.contains(network.address()))
}

/// Multiplier that scatters consecutive random sources over the network. It is a prime that divides
/// no network's address count, so no source repeats before all have been used, and is near 2^31
/// divided by the golden ratio (Fibonacci hashing).
const SCATTER: u64 = 1_327_217_909;

/// Clients of one lane, and the mapping of its sequence numbers to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneClients {
    first: u32,
    count: u32,
    consecutive_requests: u32,
    /// Key of random sources; `None` if clients are numbered in turn.
    random_key: Option<u32>,
}

impl LaneClients {
    /// Returns the clients of lane `lane` of `lanes`, out of `clients` in total, numbered in turn.
    /// The first `clients % lanes` lanes have one client more than the others. Each client sends
    /// `consecutive_requests` requests before the next one's turn.
    #[must_use]
    pub const fn in_turn(
        clients: u32,
        lane: usize,
        lanes: usize,
        consecutive_requests: u32,
    ) -> Self {
        let (lane, lanes) = (lane as u32, lanes as u32);
        let (share, more) = (clients / lanes, clients % lanes);
        let extra_before = if lane < more { lane } else { more };
        let count = share + (lane < more) as u32;
        Self { first: lane * share + extra_before, count, consecutive_requests, random_key: None }
    }

    /// Returns random sources out of `room` addresses, in an order set by `key`. Together the lanes
    /// use every address once before any repeats.
    #[must_use]
    pub const fn random(room: u32, key: u64, lane: usize, lanes: usize) -> Self {
        let Self { first, .. } = Self::in_turn(room, lane, lanes, 1);
        Self { first, count: room, consecutive_requests: 1, random_key: Some(key as u32) }
    }

    /// Returns the number of the lane's first client; of random sources the first of their order.
    #[must_use]
    pub const fn first_client(&self) -> u32 {
        self.first
    }

    /// Returns the number of clients of the lane.
    #[must_use]
    pub const fn client_count(&self) -> u32 {
        self.count
    }

    /// Returns true if a client belongs to the lane; random sources belong to every lane.
    #[must_use]
    pub const fn includes(&self, client: u32) -> bool {
        self.random_key.is_some() || (client >= self.first && client - self.first < self.count)
    }

    /// Returns the sequence number at which numbering restarts at 0: the largest multiple of a full
    /// round over the lane's clients that fits into a token; 2^27 for random sources and if a round
    /// does not fit.
    #[must_use]
    pub const fn sequence_end(&self) -> u32 {
        let limit = 1_u32 << SEQUENCE_BITS;
        if self.random_key.is_some() {
            return limit;
        }
        let full_round = self.count as u64 * self.consecutive_requests as u64;
        if full_round == 0 || full_round > limit as u64 {
            limit
        } else {
            limit - limit % full_round as u32
        }
    }

    /// Returns the sequence number of the lane's request number `total`, counted from 0 over all
    /// trials.
    #[inline]
    #[must_use]
    pub const fn sequence(&self, total: u64) -> u32 {
        (total % self.sequence_end() as u64) as u32
    }

    /// Returns the client that sends the request with this sequence number.
    #[must_use]
    pub const fn client(&self, sequence: u32) -> u32 {
        match self.random_key {
            None => self.first + (sequence / self.consecutive_requests) % self.count,
            Some(key) => {
                // Below 2^64: a sequence number has 27 bits, and the other factors have 32 and 31.
                let number = self.first as u64 + sequence as u64;
                ((number * SCATTER + key as u64) % self.count as u64) as u32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const TARGET: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn network(text: &str) -> Result<SimulatedClientNetwork, SimulatedClientsError> {
        SimulatedClientNetwork::new(text.parse().unwrap(), TARGET, &["10.1.2.3".parse().unwrap()])
    }

    #[test]
    fn only_harmless_networks_are_taken() {
        for good in ["172.16.0.0/12", "192.168.7.0/24", "198.51.100.0/24", "127.0.0.0/8"] {
            assert!(network(good).is_ok(), "{good}");
        }
        for bad in ["8.8.8.0/24", "0.0.0.0/0", "172.16.0.0/11", "198.18.0.0/15", "224.0.0.0/8"] {
            assert!(matches!(network(bad), Err(SimulatedClientsError::PublicNetwork(_))), "{bad}");
        }
    }

    #[test]
    fn real_addresses_are_not_impersonated() {
        assert!(matches!(
            network("192.0.2.0/24"),
            Err(SimulatedClientsError::Overlap { address: TARGET, .. })
        ));
        assert!(matches!(network("10.0.0.0/8"), Err(SimulatedClientsError::Overlap { .. })));
        assert!(matches!(network("fd00::/64"), Err(SimulatedClientsError::Family { .. })));
        assert_eq!(network("10.1.3.0/24").unwrap().host_count(), 254);
        for (text, room, first) in [("10.1.3.9/31", 2, "10.1.3.8"), ("10.0.0.0/32", 1, "10.0.0.0")]
        {
            let network = network(text).unwrap();
            assert_eq!(
                (network.host_count(), network.address(0).to_string()),
                (room, first.to_owned())
            );
            assert_eq!(network.client_of(network.address(0)), Some(0), "{text}");
        }
    }

    #[test]
    fn a_default_network_avoids_real_addresses() {
        let found = SimulatedClientNetwork::find("10.64.0.9".parse().unwrap(), &[]).unwrap();
        assert_eq!(found.prefix().to_string(), "172.16.0.0/12");
        let found = SimulatedClientNetwork::find("fd00::1".parse().unwrap(), &[]).unwrap();
        assert_eq!(found.address(0).to_string(), "fdfe:686f:726f:6c6f::1");
        assert_eq!(found.host_count(), u32::MAX - 1);
    }

    #[test]
    fn the_last_part_of_a_network_does_not_overlap_the_first() {
        let part = |text: &str, clients, reserved| {
            let target = if text.contains(':') { "fe80::1" } else { "192.0.2.1" };
            let whole =
                SimulatedClientNetwork::new(text.parse().unwrap(), target.parse().unwrap(), &[]);
            whole.unwrap().last_subnet(clients, reserved).map(|part| part.prefix().to_string())
        };
        assert_eq!(part("10.64.0.0/10", 100, 16_384).unwrap(), "10.127.255.128/25");
        assert_eq!(part("10.64.0.0/10", 1_000_000, 1_000_000).unwrap(), "10.112.0.0/12");
        assert_eq!(part("10.0.0.0/24", 100, 127).unwrap(), "10.0.0.128/25");
        assert!(matches!(part("10.0.0.0/24", 100, 128), Err(SimulatedClientsError::NoRoom { .. })));
        assert!(matches!(part("10.0.0.0/24", 1000, 1), Err(SimulatedClientsError::NoRoom { .. })));
        assert_eq!(part("fd00:1::/32", 5, 9).unwrap(), "fd00:1::ffff:fff8/125");
    }

    #[test]
    fn a_network_is_divided_into_equal_parts() {
        let part = |text: &str, index, count| {
            let target = if text.contains(':') { "fe80::1" } else { "192.0.2.1" };
            let whole =
                SimulatedClientNetwork::new(text.parse().unwrap(), target.parse().unwrap(), &[]);
            whole.unwrap().subnet(index, count).map(|part| part.prefix().to_string())
        };
        assert_eq!(part("10.64.0.0/10", 0, 3).unwrap(), "10.64.0.0/12");
        assert_eq!(part("10.64.0.0/10", 2, 3).unwrap(), "10.96.0.0/12");
        assert_eq!(part("fd00:1::/32", 1, 2).unwrap(), "fd00:1:8000::/33");
        assert_eq!(part("10.0.0.0/28", 3, 4).unwrap(), "10.0.0.12/30");
        assert!(matches!(part("10.0.0.0/28", 0, 5), Err(SimulatedClientsError::NoRoom { .. })));
    }

    #[test]
    fn ports_of_all_lanes_fit() {
        assert_eq!(source_port(LANES_MAX - 1), u16::MAX);
    }

    #[test]
    fn random_sources_come_once_before_any_comes_again() {
        const KEY: u64 = 0x1234_5678_9abc_def0;
        for room in [2, 254, 65_534, (1 << 20) - 2] {
            for lanes in [1, 2, 3] {
                let of = |lane| LaneClients::random(room, KEY, lane, lanes);
                let share = |lane| LaneClients::in_turn(room, lane, lanes, 1).client_count();
                let all =
                    (0..lanes).flat_map(|lane| (0..share(lane)).map(move |n| of(lane).client(n)));
                let distinct: HashSet<_> = all.collect();
                assert_eq!(distinct.len(), room as usize, "{lanes} lanes");
                assert!(distinct.iter().all(|&client| client < room));
            }
        }
    }

    #[test]
    fn no_network_makes_random_sources_repeat() {
        for host_bits in 2..=32 {
            assert_ne!(((1_u64 << host_bits) - 2) % SCATTER, 0, "{host_bits} bits");
        }
    }

    proptest! {
        #[test]
        fn every_client_is_in_one_lane(lanes in 1usize..20, more in 0u32..500, run in 1u32..40) {
            let clients = lanes as u32 + more;
            let blocks: Vec<_> =
                (0..lanes).map(|lane| LaneClients::in_turn(clients, lane, lanes, run)).collect();
            let mut next = 0;
            for block in &blocks {
                prop_assert_eq!(block.first_client(), next);
                next += block.client_count();
                prop_assert!(block.client_count().abs_diff(blocks[0].client_count()) <= 1);
            }
            prop_assert_eq!(next, clients);
        }

        /// Going on after the wrap, the turns stay even: the last client is followed by the first.
        #[test]
        fn wrapping_keeps_the_turns(clients in 1u32..1_000_000, run in 1u32..64) {
            let lane = LaneClients::in_turn(clients, 0, 1, run);
            let wrap = lane.sequence_end();
            prop_assert!(wrap <= 1 << SEQUENCE_BITS);
            prop_assert_eq!(lane.client(wrap - 1), clients - 1);
            prop_assert_eq!(lane.client(0), 0);
        }

        #[test]
        fn addresses_and_numbers_round_trip(client in 0u32..u32::MAX - 1, ipv4: bool) {
            let (text, target) = if ipv4 { ("10.0.0.0/8", "192.0.2.1") } else { ("fd00::/32", "fe80::1") };
            let network = SimulatedClientNetwork::new(text.parse().unwrap(), target.parse().unwrap(), &[]).unwrap();
            let client = client % network.host_count();
            prop_assert_eq!(network.client_of(network.address(client)), Some(client));
            prop_assert_eq!(network.client_of(target.parse().unwrap()), None);
        }
    }
}
