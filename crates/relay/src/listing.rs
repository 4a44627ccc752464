//! State of a relay as data: its table and its counts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use horolog_xdp::{RELAY_INTERFACES_MAX, RELAY_LENGTH_MAX};
use serde::{Deserialize, Serialize};

use crate::group_socket::GroupSocket;
use crate::relay::RelaySharedState;
use crate::table::{CHILDREN_MAX, GROUPS_MAX};
use crate::xdp::{ADDRESSES_MAX, CounterGuard, RING_FRAMES_MIN};
use crate::{
    ChildCounts, CopyDrop, Group, GroupChild, GroupCounts, PacketRefusal, RoutingTableSpec,
    SocketEngineKind, XdpEngine, XdpInterfaceListing,
};

/// Name and version of the listing's schema.
pub const SCHEMA: &str = "horolog.relay/2";

/// Name of the XDP engine.
const XDP: &str = "xdp";

/// State of a relay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RelayListing {
    /// [`SCHEMA`].
    pub schema: String,
    /// Engine that sends the copies: `xdp` if the XDP engine makes them as far as possible.
    pub engine: String,
    /// Socket engine for the copies that the XDP engine does not make.
    #[serde(default)]
    pub host_engine: String,
    /// Limits of a table, and of the engines.
    #[serde(default)]
    pub limits: LimitsListing,
    /// Interfaces to which the XDP engine attaches its programs; empty without an XDP engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<XdpInterfaceListing>,
    /// Interface by which programs on the same host send packets to the relay; absent without one,
    /// or after it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_interface: Option<String>,
    /// The table in force.
    pub table: RoutingTableSpec,
    /// Counts of each group.
    pub groups: Vec<GroupListing>,
    /// Receive calls that failed.
    pub receive_errors: u64,
    /// Changes of the table that were refused.
    pub changes_refused: u64,
}

/// Limits in force.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LimitsListing {
    /// Maximum number of groups.
    pub groups: u64,
    /// Maximum number of children of all groups together.
    pub children: u64,
    /// Limits of the XDP engine; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<XdpLimits>,
}

/// Limits of the XDP engine; beyond them the socket engine takes over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct XdpLimits {
    /// Maximum length of a packet with its IP header, in bytes.
    pub packet_bytes: u64,
    /// Maximum number of egress interfaces of copies.
    pub interfaces: u64,
    /// Maximum number of children of a group behind one interface: the frames of a transmit ring.
    pub children_per_interface: u64,
    /// Maximum number of destination addresses of groups' packets.
    pub addresses: u64,
    /// Reason why this kernel does not report drops at a full transmit ring, so that such copies
    /// count as sent; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted_ring_drops: Option<String>,
}

/// Counts of a group's packets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupListing {
    /// Name of the group.
    pub name: String,
    /// Engine that sends the group's copies.
    #[serde(default)]
    pub engine: String,
    /// Reason for which the XDP engine, if in use, does not make the group's copies; absent if it
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp_unavailable: Option<String>,
    /// Packets received.
    pub packets: u64,
    /// Bytes of payload in the packets received.
    pub bytes: u64,
    /// Packets refused, by reason; reasons without any are left out.
    pub refused: BTreeMap<String, u64>,
    /// Packets that the kernel dropped because the socket's receive buffer was full; `None` if it
    /// does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_dropped: Option<u32>,
    /// True if the interface on which a multicast group is joined is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interface_missing: bool,
    /// Children of the group.
    pub children: Vec<ChildListing>,
}

/// Counts of the copies for a child.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChildListing {
    /// Address of the child.
    pub address: SocketAddr,
    /// Copies sent.
    pub packets: u64,
    /// Bytes of payload in the copies sent.
    pub bytes: u64,
    /// Copies not sent, by reason; reasons without any are left out.
    pub dropped: BTreeMap<String, u64>,
    /// True if the next hop to the child is known to be unreachable.
    pub unreachable: bool,
}

impl RelayListing {
    pub(crate) fn new(shared: &RelaySharedState, engine: SocketEngineKind) -> Self {
        let plan = shared.plan.load();
        let groups = plan.table.groups().iter().zip(&plan.sockets);
        let xdp_counters = shared.xdp.as_ref().map(XdpEngine::lock_counters);
        let xdp_counters = xdp_counters.as_ref();
        Self {
            schema: SCHEMA.to_owned(),
            engine: xdp_counters.map_or(engine.name(), |_| XDP).to_owned(),
            host_engine: engine.name().to_owned(),
            limits: LimitsListing {
                groups: GROUPS_MAX as u64,
                children: CHILDREN_MAX as u64,
                kernel: xdp_counters.map(|_| XdpLimits {
                    packet_bytes: RELAY_LENGTH_MAX.into(),
                    interfaces: RELAY_INTERFACES_MAX as u64,
                    children_per_interface: RING_FRAMES_MIN as u64,
                    addresses: ADDRESSES_MAX.into(),
                    uncounted_ring_drops: shared
                        .xdp
                        .as_ref()
                        .and_then(XdpEngine::uncounted_drops_reason),
                }),
            },
            interfaces: xdp_counters.map(CounterGuard::interfaces).unwrap_or_default(),
            send_interface: shared
                .send_interface
                .as_ref()
                .filter(|_| !shared.send_interface_gone.load(Ordering::Relaxed))
                .map(|one| one.name().to_owned()),
            table: plan.table.spec(),
            groups: groups
                .map(|(group, socket)| group_listing(group, socket, xdp_counters, engine))
                .collect(),
            receive_errors: shared.receive_errors.load(Ordering::Relaxed),
            changes_refused: shared.changes_refused.load(Ordering::Relaxed),
        }
    }
}

fn group_listing(
    group: &Group,
    socket: &GroupSocket,
    xdp_counters: Option<&CounterGuard<'_>>,
    engine: SocketEngineKind,
) -> GroupListing {
    let xdp_counts = xdp_counters.map(|kernel| kernel.counts(group));
    let xdp_refusal = xdp_counters.and_then(|kernel| kernel.refusal(group));
    let is_offloaded = xdp_counters.is_some() && xdp_refusal.is_none();
    let (group_counts, child_counts) = xdp_counts.unwrap_or_default();
    let GroupCounts { packets, bytes, refused } = group.counters.counts() + group_counts;
    let child_counts = child_counts.into_iter().chain(std::iter::repeat(ChildCounts::default()));
    GroupListing {
        name: group.spec.name.clone(),
        engine: if is_offloaded { XDP } else { engine.name() }.to_owned(),
        xdp_unavailable: xdp_refusal,
        packets,
        bytes,
        refused: nonzero_counts(
            &PacketRefusal::ALL.map(|reason| (reason.name(), refused[reason as usize])),
        ),
        socket_dropped: socket.socket_drops().ok(),
        interface_missing: socket.is_interface_gone(),
        children: group.children.iter().zip(child_counts).map(child_listing).collect(),
    }
}

fn child_listing((child, xdp_counts): (&Arc<GroupChild>, ChildCounts)) -> ChildListing {
    let ChildCounts { packets, bytes, dropped } = child.counters.counts() + xdp_counts;
    ChildListing {
        address: child.address,
        packets,
        bytes,
        dropped: nonzero_counts(
            &CopyDrop::ALL.map(|reason| (reason.name(), dropped[reason as usize])),
        ),
        unreachable: child.is_unreachable(),
    }
}

/// Returns the counts that are not 0.
fn nonzero_counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let nonzero = counts.iter().filter(|(_, count)| *count > 0);
    nonzero.map(|(name, count)| ((*name).to_owned(), *count)).collect()
}
