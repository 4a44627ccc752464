//! Conversion of a run plan to the settings of the BPF program; an error if the program does not
//! support the plan.

use std::net::{IpAddr, Ipv4Addr};

use horolog_record::{LoadEngineKind as Kind, RequestMode};
use horolog_wire::ethernet::{HEADER_LEN, Header};
use horolog_wire::ptp::{ETHER_TYPE, MULTICAST_MAC};
use horolog_xdp::{GeneratorSettings, Interface, LANES_MAX, ServerOffsetSettings, XdpError};

use super::interval_reader;
use crate::engine::packet::frame_plans;
use crate::engine::{EngineError, ethernet, unavailable_error};
use crate::plan::RunPlan;
use crate::ptp::{PtpLoadTransport, PtpRequestOptions, PtpRequestTemplate};
use crate::request::{LaneFrameParameters, LaneFrameTemplate};
use crate::schedule;
use crate::target::FirstLink;

/// Returns the settings of the BPF program for a run; `chained` is true for a part of a mix.
pub(super) fn settings(plan: &RunPlan, chained: bool) -> Result<GeneratorSettings, EngineError> {
    let frame = RequestFrameTemplate::new(plan)?;
    if plan.lanes > plan.cores.len() || plan.lanes > LANES_MAX {
        let reason = format!(
            "each of {} sending threads needs a core of its own, and {} are available",
            plan.lanes,
            plan.cores.len().min(LANES_MAX)
        );
        return Err(unavailable_error(Kind::Xdp, reason, "use fewer threads"));
    }
    let (behaviour, ptp) = (plan.requests.behaviour(), plan.requests.ptp());
    let mode = behaviour.mode();
    let protocol = behaviour
        .kernel_protocol()
        .map_err(|(reason, remedy)| unavailable_error(Kind::Xdp, reason.to_owned(), remedy))?;
    if !horolog_xdp::live_frames_supported()? {
        return Err(XdpError::NoLiveFrames.into());
    }
    Ok(GeneratorSettings {
        protocol,
        multicast: ptp.is_some_and(|ptp| ptp.multicast),
        domain: ptp.map_or(0, |ptp| ptp.domain),
        offsets: plan.offset.map(|offset| ServerOffsetSettings {
            correction_ns: offset.correction.as_ns(),
            mean_of_server: offset.mean_of_server,
        }),
        ethernet: frame.target_mac,
        interface: frame.interface,
        target: plan.target.ip(),
        port: plan.target.port(),
        version: behaviour.version(),
        lanes: plan.lanes as u32,
        echo: mode == RequestMode::Echo,
        interleaved: mode == RequestMode::NtpInterleaved,
        clients: plan.clients,
        counts_each_client: plan.fairness,
        open_intervals: plan.interval.map_or(1, |interval| {
            interval_reader::open_interval_count(interval, plan.reply_timeout)
        }),
        chained,
        key: plan.token.key(),
        run_start_ns: plan.token.run_start().as_ns() as u64,
        reply_timeout_ns: plan.reply_timeout.as_ns() as u64,
        request: frame.bytes,
        sums: frame.sums,
        first_client: frame.first_client,
        exponential: schedule::exponential_quantiles(),
    })
}

/// Template of the request frames of a run, and the addresses that belong to it.
pub(super) struct RequestFrameTemplate {
    /// Interface that sends the frames.
    pub(super) interface: Interface,
    /// Frame with 0 in the fields that differ between requests.
    pub(super) bytes: Vec<u8>,
    /// Sums of the constant fields that the IPv4 and the UDP checksum cover; 0 over Ethernet.
    pub(super) sums: (u64, u64),
    /// Address of client 0; unspecified over Ethernet.
    pub(super) first_client: IpAddr,
    /// MAC address of the target over Ethernet; `None` over UDP.
    pub(super) target_mac: Option<[u8; 6]>,
}

impl RequestFrameTemplate {
    pub(super) fn new(plan: &RunPlan) -> Result<Self, EngineError> {
        match plan.requests.ptp() {
            Some(ptp) if ptp.transport == PtpLoadTransport::Ethernet => {
                Self::over_ethernet(plan, &ptp)
            }
            _ => Self::over_udp(plan),
        }
    }

    fn over_udp(plan: &RunPlan) -> Result<Self, EngineError> {
        let (link, frames) = frame_plans(plan, Kind::Xdp)?;
        let (Some(network), Some(frame)) = (plan.network, frames.first()) else {
            let reason = "simulated clients are missing".to_owned();
            return Err(unavailable_error(Kind::Xdp, reason, "name a source network with -s"));
        };
        let template = LaneFrameTemplate::new(&match frame.ptp {
            // The program sets the source port of each lane.
            None => LaneFrameParameters { source_port: 0, ..*frame },
            Some(_) => *frame,
        });
        Ok(Self {
            interface: interface(link),
            bytes: template.bytes().to_vec(),
            sums: template.constant_sums(),
            first_client: network.address(0),
            target_mac: None,
        })
    }

    fn over_ethernet(plan: &RunPlan, ptp: &PtpRequestOptions) -> Result<Self, EngineError> {
        let (link, macs) = ethernet::master_link(plan, Kind::Xdp)?;
        let destination = if ptp.multicast { MULTICAST_MAC } else { macs.destination };
        let header =
            Header { destination, source: macs.source, vlan: None, ether_type: ETHER_TYPE };
        let message = PtpRequestTemplate::new(ptp, 0, plan.target.ip());
        let mut bytes = vec![0; HEADER_LEN];
        header.emit(&mut bytes);
        bytes.extend_from_slice(message.bytes());
        Ok(Self {
            interface: interface(link),
            bytes,
            sums: (0, 0),
            first_client: Ipv4Addr::UNSPECIFIED.into(),
            target_mac: Some(macs.destination.0),
        })
    }
}

fn interface(link: &FirstLink) -> Interface {
    Interface { index: link.index, name: link.interface.clone() }
}
