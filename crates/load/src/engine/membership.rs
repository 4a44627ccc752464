//! Membership in the group that a PTP master answers to: without it the interface would not take
//! the group's frames, and the switches on the way would not pass them on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use super::EngineError;
use crate::plan::RunPlan;
use crate::target::Route;

/// Holds the membership; nothing is ever read from the socket.
pub(crate) struct Membership {
    _socket: UdpSocket,
}

impl Membership {
    /// Joins the group that answers to `plan` go to; `None` where they go to the clients.
    pub(crate) fn of(plan: &RunPlan) -> Result<Option<Self>, EngineError> {
        let group = plan.ptp.and_then(|ptp| ptp.group(plan.target.ip()));
        let (Some(group), Route::Link(link)) = (group, &plan.route) else { return Ok(None) };
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
        Ok(Some(Self { _socket: joined }))
    }
}
