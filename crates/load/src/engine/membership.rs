//! Membership in the multicast group that a PTP master replies to: without it the interface would
//! not accept the group's frames, and the switches on the path would not forward them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use horolog_io::{FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_sys::filter::BpfInstruction;
use horolog_wire::ptp::MULTICAST_MAC;

use super::EngineError;
use crate::plan::RunPlan;
use crate::target::{FirstLink, Route};

/// Multicast membership, held until it is dropped. Nothing is read from its socket.
pub(crate) enum HeldMulticastMembership {
    /// Membership in an IP group.
    Udp(#[expect(dead_code, reason = "held for what its end undoes")] UdpSocket),
    /// Membership in the group of all PTP ports on a link.
    Ethernet(#[expect(dead_code, reason = "held for what its end undoes")] PacketSocketDevice),
}

impl HeldMulticastMembership {
    /// Joins the group to which the replies of `plan` are sent; `None` if they are sent by unicast
    /// or the target is this host.
    pub(crate) fn join(plan: &RunPlan) -> Result<Option<Self>, EngineError> {
        let behaviour = plan.requests.behaviour();
        let group = behaviour.multicast_group(plan.target.ip());
        let (Some(group), Route::Link(link)) = (group, &plan.route) else { return Ok(None) };
        if behaviour.is_over_ethernet() {
            return Self::join_on_link(link).map(Some);
        }
        let join = || match (group, link.source) {
            (IpAddr::V4(group), IpAddr::V4(own)) => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                socket.join_multicast_v4(&group, &own)?;
                Ok(socket)
            }
            (group, _) => {
                let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
                if let IpAddr::V6(group) = group {
                    socket.join_multicast_v6(&group, link.index)?;
                }
                Ok(socket)
            }
        };
        let joined = join().map_err(EngineError::system(format!("join the group {group}")))?;
        Ok(Some(Self::Udp(joined)))
    }

    /// Joins the PTP multicast MAC address on a link.
    fn join_on_link(link: &FirstLink) -> Result<Self, EngineError> {
        let options = PacketSocketOptions {
            slots: 1,
            selection: FrameSelection::Program(vec![BpfInstruction::finish(0)]),
            groups: vec![MULTICAST_MAC],
            ..PacketSocketOptions::default()
        };
        Ok(Self::Ethernet(PacketSocketDevice::open(&link.interface, &options)?))
    }
}
