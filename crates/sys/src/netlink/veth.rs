//! Creation of veth pairs. Each end is created directly in its own namespace.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};

use super::{MacAddress, Netlink, NetlinkError};

/// Configuration of an end of a veth pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethEndConfig {
    /// Interface name, at most 15 bytes.
    pub name: String,
    /// MAC address; chosen by the kernel if `None`.
    pub mac: Option<MacAddress>,
}

/// Configuration of a veth pair to create.
#[derive(Debug)]
pub struct VethPairConfig<'a> {
    /// End in this connection's namespace.
    pub local: VethEndConfig,
    /// End in the namespace [`Self::peer_namespace`].
    pub peer: VethEndConfig,
    /// Network namespace of the peer end.
    pub peer_namespace: BorrowedFd<'a>,
    /// Number of receive queues, and of transmit queues, of each end.
    pub queues: u32,
}

impl Netlink {
    /// Creates a veth pair; both ends are down at first.
    pub fn create_veth(&mut self, pair: &VethPairConfig<'_>) -> Result<(), NetlinkError> {
        let mut peer = link_message(&pair.peer, pair.queues);
        peer.attributes.push(LinkAttribute::NetNsFd(pair.peer_namespace.as_raw_fd()));
        let mut local = link_message(&pair.local, pair.queues);
        local.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let action = format!("create the veth pair '{}'-'{}'", pair.local.name, pair.peer.name);
        self.change(&action, RouteNetlinkMessage::NewLink(local), NLM_F_CREATE | NLM_F_EXCL)
    }
}

fn link_message(end: &VethEndConfig, queues: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(end.name.clone()),
        LinkAttribute::NumTxQueues(queues),
        LinkAttribute::NumRxQueues(queues),
    ];
    message.attributes.extend(end.mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    message
}
