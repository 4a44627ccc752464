//! The state of a relay as data: its table, and what was counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use horolog_xdp::{RELAY_INTERFACES_MAX, RELAY_LENGTH_MAX};
use serde::{Deserialize, Serialize};

use crate::kernel::{ADDRESSES_MAX, Look, RING};
use crate::node::Shared;
use crate::outlet::Outlet;
use crate::table::{CHILDREN_MAX, GROUPS_MAX};
use crate::{
    Child, ChildTally, Drop, EngineKind, Group, GroupTally, InterfaceListing, Kernel, Refusal, Spec,
};

/// Name and version of this format.
pub const SCHEMA: &str = "horolog.relay/1";

/// The name of the kernel's body among the engines.
const XDP: &str = "xdp";

/// The state of a relay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// [`SCHEMA`].
    pub schema: String,
    /// What sends the copies: `xdp` where the kernel makes them as far as it can.
    pub engine: String,
    /// What sends those that the kernel does not make.
    #[serde(default)]
    pub host_engine: String,
    /// How large a table may be, and what one engine or the other can do.
    #[serde(default)]
    pub limits: LimitsListing,
    /// Where packets of groups come in, as far as the kernel's programs are concerned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceListing>,
    /// By which programs on the same host hand packets over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_interface: Option<String>,
    /// The table in force.
    pub table: Spec,
    /// What was counted for each group.
    pub groups: Vec<GroupListing>,
    /// Receive calls that failed.
    pub receive_errors: u64,
    /// Changes of the table that were refused.
    pub changes_refused: u64,
}

/// The limits that are in force.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LimitsListing {
    /// Groups.
    pub groups: u64,
    /// Children of all groups together.
    pub children: u64,
    /// Those of the kernel's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelLimits>,
}

/// The limits of the kernel's body; what is beyond is left to the other engine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelLimits {
    /// Bytes of a packet, its IP header included.
    pub packet_bytes: u64,
    /// Interfaces by which copies leave.
    pub interfaces: u64,
    /// Children of a group behind one interface: frames of a transmit ring.
    pub children_behind_an_interface: u64,
    /// Addresses that groups' packets go to.
    pub addresses: u64,
    /// Why copies that a transmit ring has no room for count as sent, where the kernel does not
    /// tell of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_drops_unseen: Option<String>,
}

/// What became of the packets of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupListing {
    /// Its name.
    pub name: String,
    /// What sends its copies.
    #[serde(default)]
    pub engine: String,
    /// Why the kernel does not make them, where it could for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_in_kernel: Option<String>,
    /// Packets received.
    pub packets: u64,
    /// Bytes of payload in them.
    pub bytes: u64,
    /// Packets refused, by reason; reasons without any are left out.
    pub refused: BTreeMap<String, u64>,
    /// Packets that the kernel dropped before, because the socket's buffer was full; `None` where
    /// it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_dropped: Option<u32>,
    /// Whether the interface that a multicast group is joined on is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interface_gone: bool,
    /// Its children.
    pub children: Vec<ChildListing>,
}

/// What became of the copies for a child.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChildListing {
    /// Where they go.
    pub address: SocketAddr,
    /// Copies sent.
    pub packets: u64,
    /// Bytes of payload in them.
    pub bytes: u64,
    /// Copies not sent, by reason; reasons without any are left out.
    pub dropped: BTreeMap<String, u64>,
    /// Whether the next hop on the way to it is known not to answer.
    pub silent: bool,
}

impl Listing {
    pub(crate) fn new(shared: &Shared, engine: EngineKind) -> Self {
        let plan = shared.plan.load();
        let groups = plan.table.groups().iter().zip(&plan.outlets);
        let kernel = shared.kernel.as_ref().map(Kernel::look);
        let kernel = kernel.as_ref();
        Self {
            schema: SCHEMA.to_owned(),
            engine: kernel.map_or(engine.name(), |_| XDP).to_owned(),
            host_engine: engine.name().to_owned(),
            limits: LimitsListing {
                groups: GROUPS_MAX as u64,
                children: CHILDREN_MAX as u64,
                kernel: kernel.map(|_| KernelLimits {
                    packet_bytes: RELAY_LENGTH_MAX.into(),
                    interfaces: RELAY_INTERFACES_MAX as u64,
                    children_behind_an_interface: RING as u64,
                    addresses: ADDRESSES_MAX.into(),
                    ring_drops_unseen: shared.kernel.as_ref().and_then(Kernel::ring_drops_unseen),
                }),
            },
            interfaces: kernel.map(Look::interfaces).unwrap_or_default(),
            send_interface: shared
                .send_interface
                .as_ref()
                .filter(|_| !shared.send_interface_gone.load(Ordering::Relaxed))
                .map(|one| one.name().to_owned()),
            table: plan.table.spec(),
            groups: groups.map(|(group, outlet)| of_group(group, outlet, kernel, engine)).collect(),
            receive_errors: shared.receive_errors.load(Ordering::Relaxed),
            changes_refused: shared.changes_refused.load(Ordering::Relaxed),
        }
    }
}

fn of_group(
    group: &Group,
    outlet: &Outlet,
    kernel: Option<&Look<'_>>,
    engine: EngineKind,
) -> GroupListing {
    let below = kernel.map(|kernel| kernel.tallies(group));
    let not_in_kernel = kernel.and_then(|kernel| kernel.refusal(group));
    let in_kernel = kernel.is_some() && not_in_kernel.is_none();
    let (of_group, of_children) = below.unwrap_or_default();
    let GroupTally { packets, bytes, refused } = group.book.tally() + of_group;
    let of_children = of_children.into_iter().chain(std::iter::repeat(ChildTally::default()));
    GroupListing {
        name: group.spec.name.clone(),
        engine: if in_kernel { XDP } else { engine.name() }.to_owned(),
        not_in_kernel,
        packets,
        bytes,
        refused: some(&Refusal::ALL.map(|reason| (reason.name(), refused[reason as usize]))),
        socket_dropped: outlet.dropped().ok(),
        interface_gone: outlet.is_lost(),
        children: group.children.iter().zip(of_children).map(of_child).collect(),
    }
}

fn of_child((child, below): (&Arc<Child>, ChildTally)) -> ChildListing {
    let ChildTally { packets, bytes, dropped } = child.book.tally() + below;
    ChildListing {
        address: child.address,
        packets,
        bytes,
        dropped: some(&Drop::ALL.map(|reason| (reason.name(), dropped[reason as usize]))),
        silent: child.is_silent(),
    }
}

/// The counts that are not 0.
fn some(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    some.map(|(name, count)| ((*name).to_owned(), *count)).collect()
}
