//! Network interfaces: finding them, reading their properties and counters, and changing their
//! state.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State, Stats64,
};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use super::{MacAddress, Netlink, NetlinkError};

/// Network interface (rtnetlink "link").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Interface index in this namespace.
    pub index: u32,
    /// Interface name, at most 15 bytes.
    pub name: String,
    /// MAC address; `None` for interfaces without one, such as tunnels.
    pub mac: Option<MacAddress>,
    /// MTU in bytes.
    pub mtu: u32,
    /// True if the interface is administratively up.
    pub up: bool,
    /// True if the interface is operational (RFC 2863, `ifOperStatus`): up, with carrier, and
    /// registered as such by the kernel, which takes a moment. Also true for drivers that do not
    /// report it.
    pub operational: bool,
    /// Index of the associated interface (`IFLA_LINK`): the peer of a veth, the underlying
    /// interface of a VLAN. It is valid in the namespace [`Link::peer_nsid`].
    pub peer_index: Option<u32>,
    /// Namespace of the associated interface (`IFLA_LINK_NETNSID`), as an identifier of this
    /// namespace; `None` for this namespace itself. See [`Netlink::nsid_of`].
    pub peer_nsid: Option<i32>,
    /// Kind of a virtual interface (`veth`, `vlan`, `bridge`); `None` for hardware and for
    /// loopback.
    pub kind: Option<String>,
    /// VLAN tag of a VLAN interface; `None` for other interfaces.
    pub vlan: Option<VlanId>,
    /// Number of allocated receive queues, not all of which may be in use (see
    /// `ethtool::channels`).
    pub num_rx_queues: u32,
    /// Number of allocated transmit queues.
    pub num_tx_queues: u32,
    /// Counters at the time of the request.
    pub counters: LinkCounters,
}

/// VLAN tag (IEEE 802.1Q, section 9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VlanId {
    /// Tag protocol identifier, such as 0x8100.
    pub protocol: u16,
    /// VLAN identifier, 12 bits.
    pub identifier: u16,
}

impl VlanId {
    fn from_data(data: &[InfoVlan]) -> Option<Self> {
        let mut vlan = Self { protocol: 0x8100, identifier: 0 };
        for part in data {
            match part {
                InfoVlan::Id(identifier) => vlan.identifier = *identifier,
                InfoVlan::Protocol(protocol) => vlan.protocol = *protocol as u16,
                _ => {}
            }
        }
        (vlan.identifier != 0).then_some(vlan)
    }
}

/// Counters of an interface since its creation (`struct rtnl_link_stats64`). Whether packets
/// processed by XDP are included depends on the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets with errors.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Received packets that were dropped, such as for lack of room.
    pub rx_dropped: u64,
    /// Packets dropped before they were sent.
    pub tx_dropped: u64,
    /// Packets missed by the hardware because the receive ring was full.
    pub rx_missed: u64,
}

impl Netlink {
    /// Returns the interface with this name.
    pub fn link_by_name(&mut self, name: &str) -> Result<Link, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.find_link(message).map_err(|error| match error.errno() {
            // The kernel refuses a name that is too long to exist with EINVAL or ERANGE.
            Some(libc::ENODEV | libc::EINVAL | libc::ERANGE) => {
                NetlinkError::NoSuchInterface(name.to_owned())
            }
            _ => error,
        })
    }

    /// Returns the interface with this index.
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, NetlinkError> {
        if index == 0 {
            return Err(NetlinkError::NoSuchIndex(0));
        }
        self.find_link(link_message(index)).map_err(|error| error.for_index(index))
    }

    /// Returns all interfaces of this namespace, in the kernel's order.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        Ok(self
            .dump("list the interfaces", &request)?
            .into_iter()
            .filter_map(|item| match item {
                RouteNetlinkMessage::NewLink(message) => Some(Link::from_message(message)),
                _ => None,
            })
            .collect())
    }

    /// Sets an interface administratively up.
    pub fn set_link_up(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_link_flags(index, LinkFlags::Up, "set the interface up")
    }

    /// Sets an interface administratively down.
    pub fn set_link_down(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_link_flags(index, LinkFlags::empty(), "set the interface down")
    }

    /// Sets the largest IP packet size, in bytes.
    pub fn set_link_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        self.set_link(index, LinkAttribute::Mtu(mtu), &format!("set the MTU to {mtu}"))
    }

    /// Sets the Ethernet address.
    pub fn set_link_mac(&mut self, index: u32, mac: MacAddress) -> Result<(), NetlinkError> {
        self.set_link(index, LinkAttribute::Address(mac.to_vec()), "set the MAC address")
    }

    /// Moves an interface into another network namespace. Its addresses and routes are lost, and
    /// its index may change.
    pub fn move_link(&mut self, index: u32, namespace: BorrowedFd<'_>) -> Result<(), NetlinkError> {
        let target = LinkAttribute::NetNsFd(namespace.as_raw_fd());
        self.set_link(index, target, "move the interface into another network namespace")
    }

    /// Deletes a virtual interface; for a veth, its peer as well.
    pub fn delete_link(&mut self, index: u32) -> Result<(), NetlinkError> {
        let request = RouteNetlinkMessage::DelLink(link_message(index));
        self.change("delete the interface", request, 0).map_err(|error| error.for_index(index))
    }

    fn find_link(&mut self, message: LinkMessage) -> Result<Link, NetlinkError> {
        let action = "look up the interface";
        match self.get(action, RouteNetlinkMessage::GetLink(message))? {
            Some(RouteNetlinkMessage::NewLink(found)) => Ok(Link::from_message(found)),
            _ => Err(NetlinkError::malformed(action, "no interface in the answer")),
        }
    }

    fn set_link(
        &mut self,
        index: u32,
        attribute: LinkAttribute,
        action: &str,
    ) -> Result<(), NetlinkError> {
        let mut message = link_message(index);
        message.attributes.push(attribute);
        self.change(action, RouteNetlinkMessage::SetLink(message), 0)
            .map_err(|error| error.for_index(index))
    }

    fn set_link_flags(
        &mut self,
        index: u32,
        flags: LinkFlags,
        action: &str,
    ) -> Result<(), NetlinkError> {
        let mut message = link_message(index);
        message.header.flags = flags;
        message.header.change_mask = LinkFlags::Up;
        self.change(action, RouteNetlinkMessage::SetLink(message), 0)
            .map_err(|error| error.for_index(index))
    }
}

fn link_message(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

impl Link {
    fn from_message(message: LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            mac: None,
            mtu: 0,
            up: message.header.flags.contains(LinkFlags::Up),
            operational: false,
            peer_index: None,
            peer_nsid: None,
            kind: None,
            vlan: None,
            num_rx_queues: 0,
            num_tx_queues: 0,
            counters: LinkCounters::default(),
        };
        for attribute in message.attributes {
            link.apply(attribute);
        }
        link
    }

    fn apply(&mut self, attribute: LinkAttribute) {
        match attribute {
            LinkAttribute::IfName(name) => self.name = name,
            LinkAttribute::Address(bytes) => self.mac = bytes.try_into().ok(),
            LinkAttribute::Mtu(mtu) => self.mtu = mtu,
            LinkAttribute::OperState(state) => {
                self.operational = matches!(state, State::Up | State::Unknown);
            }
            LinkAttribute::Link(index) => self.peer_index = (index != 0).then_some(index),
            LinkAttribute::LinkNetNsId(nsid) => self.peer_nsid = Some(nsid),
            LinkAttribute::NumRxQueues(count) => self.num_rx_queues = count,
            LinkAttribute::NumTxQueues(count) => self.num_tx_queues = count,
            LinkAttribute::Stats64(stats) => self.counters = LinkCounters::from(&stats),
            LinkAttribute::LinkInfo(infos) => {
                self.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
                self.vlan = infos.iter().find_map(|info| match info {
                    LinkInfo::Data(InfoData::Vlan(data)) => VlanId::from_data(data),
                    _ => None,
                });
            }
            _ => {}
        }
    }
}

impl From<&Stats64> for LinkCounters {
    fn from(stats: &Stats64) -> Self {
        Self {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            rx_dropped: stats.rx_dropped,
            tx_dropped: stats.tx_dropped,
            rx_missed: stats.rx_missed_errors,
        }
    }
}

impl Netlink {
    /// Returns the identifier of `namespace` in this connection's namespace; `None` if none is
    /// assigned. The kernel assigns one when it needs it, for example to report a veth whose peer
    /// is there.
    pub fn nsid_of(&mut self, namespace: BorrowedFd<'_>) -> Result<Option<i32>, NetlinkError> {
        let action = "look up the identifier of a network namespace";
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(namespace.as_raw_fd().cast_unsigned()));
        match self.get(action, RouteNetlinkMessage::GetNsId(message))? {
            Some(RouteNetlinkMessage::NewNsId(answer)) => Ok(parse(&answer)),
            _ => Err(NetlinkError::malformed(action, "no identifier in the answer")),
        }
    }
}

fn parse(answer: &NsidMessage) -> Option<i32> {
    answer.attributes.iter().find_map(|attribute| match attribute {
        // A negative number (NETNSA_NSID_NOT_ASSIGNED) means that none is assigned.
        NsidAttribute::Id(id) => (*id >= 0).then_some(*id),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_become_fields() {
        let mut message = link_message(4);
        message.header.flags = LinkFlags::Up | LinkFlags::Broadcast;
        message.attributes = vec![
            LinkAttribute::IfName("veth0".to_owned()),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
            LinkAttribute::OperState(State::LowerLayerDown),
            LinkAttribute::Link(9),
            LinkAttribute::LinkNetNsId(0),
            LinkAttribute::NumRxQueues(2),
        ];
        let link = Link::from_message(message);
        assert_eq!((link.index, link.name.as_str()), (4, "veth0"));
        assert!(link.up && !link.operational);
        assert_eq!(link.mac, Some([2, 0, 0, 0, 0, 1]));
        assert_eq!((link.peer_index, link.peer_nsid, link.num_rx_queues), (Some(9), Some(0), 2));
    }

    #[test]
    fn a_vlan_is_read() {
        let mut message = link_message(5);
        let data = vec![InfoVlan::Id(7), InfoVlan::Protocol(0x88a8.into())];
        message.attributes = vec![
            LinkAttribute::Link(4),
            LinkAttribute::LinkInfo(vec![LinkInfo::Data(InfoData::Vlan(data))]),
        ];
        let link = Link::from_message(message);
        assert_eq!(link.vlan, Some(VlanId { protocol: 0x88a8, identifier: 7 }));
        assert_eq!(link.peer_index, Some(4));
    }

    #[test]
    fn an_address_that_is_not_ethernet_is_no_mac() {
        let mut message = link_message(1);
        message.attributes = vec![LinkAttribute::Address(vec![10, 0, 0, 1])];
        assert_eq!(Link::from_message(message).mac, None);
    }

    #[test]
    fn loopback_is_found_by_name_and_by_index() {
        let mut netlink = Netlink::open().unwrap();
        let by_name = netlink.link_by_name("lo").unwrap();
        let by_index = netlink.link_by_index(by_name.index).unwrap();
        assert_eq!(by_index.name, "lo");
        assert!(netlink.links().unwrap().iter().any(|link| link.name == "lo"));
    }

    #[test]
    fn a_missing_interface_is_named() {
        let mut netlink = Netlink::open().unwrap();
        for name in ["no-such-if", "a-name-that-is-far-too-long-for-the-kernel", ""] {
            let error = netlink.link_by_name(name).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("interface '{name}' not found; 'ip link' lists them")
            );
        }
        let error = netlink.link_by_index(u32::MAX >> 1).unwrap_err();
        assert!(matches!(error, NetlinkError::NoSuchIndex(_)), "{error}");
        assert!(matches!(netlink.link_by_index(0), Err(NetlinkError::NoSuchIndex(0))));
    }

    #[test]
    fn minus_one_is_no_identifier() {
        let mut message = NsidMessage::default();
        message.attributes = vec![NsidAttribute::Id(-1)];
        assert_eq!(parse(&message), None);
        message.attributes = vec![NsidAttribute::Id(0)];
        assert_eq!(parse(&message), Some(0));
    }
}
