//! Making a pair of virtual Ethernet interfaces, each end in a namespace of its own from the
//! first instant: nothing ever shows in a third one.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};

use super::{MacAddress, Netlink, NetlinkError};

/// One end of a veth pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethEnd {
    /// The interface's name, at most 15 bytes.
    pub name: String,
    /// Its Ethernet address; the kernel makes one up for `None`.
    pub mac: Option<MacAddress>,
}

/// A veth pair to be made.
#[derive(Debug)]
pub struct VethPair<'a> {
    /// The end in this connection's namespace.
    pub local: VethEnd,
    /// The other end.
    pub peer: VethEnd,
    /// Where the other end is put.
    pub peer_namespace: BorrowedFd<'a>,
    /// Receive queues, and as many transmit queues, of each end.
    pub queues: u32,
}

impl Netlink {
    /// Makes a veth pair; both ends are down at first.
    pub fn create_veth(&mut self, pair: &VethPair<'_>) -> Result<(), NetlinkError> {
        let mut peer = end(&pair.peer, pair.queues);
        peer.attributes.push(LinkAttribute::NetNsFd(pair.peer_namespace.as_raw_fd()));
        let mut local = end(&pair.local, pair.queues);
        local.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let action = format!("make the veth pair '{}'-'{}'", pair.local.name, pair.peer.name);
        self.change(&action, RouteNetlinkMessage::NewLink(local), NLM_F_CREATE | NLM_F_EXCL)
    }
}

fn end(end: &VethEnd, queues: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(end.name.clone()),
        LinkAttribute::NumTxQueues(queues),
        LinkAttribute::NumRxQueues(queues),
    ];
    message.attributes.extend(end.mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    message
}
