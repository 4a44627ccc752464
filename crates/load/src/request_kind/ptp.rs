//! Requests to a PTP master: delay requests, NetSync Monitor and unicast negotiation, which differ
//! by [`PtpRequestKind`].

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use horolog_io::{NonReplySamplingRule, PacketSamplingRule, RemoteEnd, RemoteEndSelection};
use horolog_record::{LoadEngineKind as Kind, RequestMode, Severity};
use horolog_sys::hardware_timestamps::TimestampPurpose;
use horolog_wire::ptp::{self, EVENT_PORT, GENERAL_PORT, MessageType};
use horolog_xdp::RequestProtocol;

use super::{RequestBehaviour, RequestKind, UnsynchronisedDescription};
use crate::capture::sampling_rule;
use crate::compliant_clients::CompliantClientOptions;
use crate::engine::ethernet::PtpEthernetEngine;
use crate::engine::packet::PacketEngine;
use crate::engine::udp_ptp::PtpUdpEngine;
use crate::engine::{EngineError, LoadEngine, unavailable_error};
use crate::error::LoadError;
use crate::options::LoadOptions;
use crate::plan::RunPlan;
use crate::ptp::{PtpLoadTransport, PtpMessageVerifier, PtpRequestKind, PtpRequestOptions};
use crate::request_tracker::{ExpectedReplies, PtpReplyCounts};
use crate::target::Route;

/// Offset of the 32-bit word whose low half is the sequence ID of a PTP message. A `Delay_Resp`
/// copies the ID of its `Delay_Req` (IEEE 1588-2019, table 35).
const SEQUENCE_WORD: u32 = ptp::SEQUENCE_ID_OFFSET as u32 - 2;

/// Offsets of the low 32 bits of the requester's clock identity, in a request for unicast messages
/// and in its grant (IEEE 1588-2019, tables 35 and 51). The identity holds the token. Sequence IDs
/// do not match here, since the master numbers its Signaling messages itself.
const REQUESTER_LOW: u32 = ptp::SOURCE_OFFSET as u32 + 4;
const TARGET_LOW: u32 = ptp::HEADER_LEN as u32 + 4;

impl PtpRequestOptions {
    const fn is_nsm(&self) -> bool {
        matches!(self.kind, PtpRequestKind::Nsm)
    }

    /// Refuses options that have no effect on any request of a run, or that are invalid.
    fn check_run(&self, options: &LoadOptions) -> Result<(), LoadError> {
        // The port and the offsets of a mix apply to its other kinds of requests.
        if options.requests.is_several() {
            return Ok(());
        }
        if options.target.has_port() {
            return Err(LoadError::PtpPort);
        }
        if options.offset.is_some() && !self.reports_transmit_time() {
            return Err(LoadError::Ptp(
                "delay responses and grants carry no transmit timestamp; measure offsets with \
                 'ptp nsm'",
            ));
        }
        Ok(())
    }
}

impl RequestBehaviour for PtpRequestOptions {
    fn mode(&self) -> RequestMode {
        match self.kind {
            PtpRequestKind::Delay => RequestMode::PtpDelay,
            PtpRequestKind::Nsm => RequestMode::PtpNsm,
            PtpRequestKind::Unicast(_) => RequestMode::PtpUnicast,
        }
    }

    fn check_options(&self, options: &LoadOptions) -> Result<(), LoadError> {
        self.check_run(options)?;
        let names_clients = options.source_network.is_some() || options.random_sources;
        let reason = if self.minor_version > 1 {
            "unsupported PTP version: the minor version is 0 or 1, for 2.0 or 2.1"
        } else if self.kind != PtpRequestKind::Delay && self.multicast {
            "multicast supports delay requests only; omit multicast"
        } else if self.is_nsm() && options.random_sources {
            "NetSync Monitor needs distinct clients; omit random sources"
        } else if self.is_over_ethernet() && names_clients {
            "clients have no IP addresses over Ethernet; omit the source network"
        } else {
            return Ok(());
        };
        Err(LoadError::Ptp(reason))
    }

    fn kernel_protocol(&self) -> Result<RequestProtocol, (&'static str, &'static str)> {
        match self.kind {
            PtpRequestKind::Delay => Ok(RequestProtocol::PtpDelay),
            PtpRequestKind::Nsm => Ok(RequestProtocol::PtpMonitor),
            PtpRequestKind::Unicast(_) => {
                Err(("it does not support unicast negotiation", "use --engine packet or udp"))
            }
        }
    }

    fn open_engine(&self, kind: Kind, plan: &RunPlan) -> Result<Box<dyn LoadEngine>, EngineError> {
        Ok(match (kind, self.transport) {
            (Kind::Udp, PtpLoadTransport::Ethernet) => {
                let reason = "it cannot send frames without IP".to_owned();
                let remedy = "use --engine packet or xdp over Ethernet";
                return Err(unavailable_error(kind, reason, remedy));
            }
            (Kind::Udp, PtpLoadTransport::Udp) => Box::new(PtpUdpEngine::open(plan, *self)?),
            (_, PtpLoadTransport::Ethernet) => Box::new(PtpEthernetEngine::open(plan, *self)?),
            (_, PtpLoadTransport::Udp) => Box::new(PacketEngine::open(plan)?),
        })
    }

    fn compliant_requests(&self) -> RequestKind {
        RequestKind::Ptp(*self)
    }

    fn unsupported_as_compliant(&self, options: &CompliantClientOptions) -> Option<&'static str> {
        if self.is_over_ethernet() {
            return Some(
                "over Ethernet all clients share one address; omit compliant clients, or use UDP",
            );
        }
        (self.is_nsm() && options.burst > 1).then_some(
            "NetSync Monitor allows one outstanding request for each client; omit the burst",
        )
    }

    fn fixed_port(&self) -> Option<u16> {
        Some(self.port())
    }

    fn reply_ports(&self, _: u16) -> RangeInclusive<u16> {
        EVENT_PORT..=GENERAL_PORT
    }

    fn multicast_group(&self, target: IpAddr) -> Option<IpAddr> {
        self.multicast_group(target)
    }

    fn is_over_ethernet(&self) -> bool {
        self.transport == PtpLoadTransport::Ethernet
    }

    fn single_client_reason(&self, is_simulated: bool) -> Option<&'static str> {
        if self.clients_max().is_some() {
            return Some("NetSync Monitor over Ethernet");
        }
        (!is_simulated && !self.is_over_ethernet()).then_some("PTP over UDP sockets")
    }

    fn reports_transmit_time(&self) -> bool {
        self.is_nsm()
    }

    fn timestamp_purpose(&self) -> TimestampPurpose {
        TimestampPurpose::Ptp
    }

    fn expected_replies(
        &self,
        plan: &RunPlan,
        clients: u32,
        (lane, lanes): (usize, usize),
    ) -> ExpectedReplies {
        let clients = if !self.replies_to_client_address() {
            self.clients_max().unwrap_or(0)
        } else if plan.random_sources {
            0
        } else {
            clients
        };
        ExpectedReplies::Ptp(PtpMessageVerifier {
            plan: *self,
            token: plan.token,
            lane: plan.first_lane + lane,
            lanes: plan.first_lane + lanes,
            clients,
            master: plan.target.ip(),
        })
    }

    fn ptp_counts(&self) -> Option<PtpReplyCounts> {
        Some(PtpReplyCounts::default())
    }

    fn captured_ends(&self, plan: &RunPlan) -> RemoteEndSelection {
        if let (true, Route::Link(link)) = (self.is_over_ethernet(), &plan.route) {
            let master = link.macs.map(|macs| macs.destination);
            let to = if self.multicast { Some(ptp::MULTICAST_MAC) } else { master };
            let end = |address| RemoteEnd::Ethernet(ptp::ETHER_TYPE, address);
            return RemoteEndSelection {
                from: master.map(end).into_iter().collect(),
                to: to.map(end).into_iter().collect(),
            };
        }
        let master = plan.target.ip();
        let ports = [EVENT_PORT, GENERAL_PORT];
        RemoteEndSelection {
            from: ports.map(|port| RemoteEnd::Udp(SocketAddr::new(master, port))).into(),
            to: vec![RemoteEnd::Udp(self.destination(master))],
        }
    }

    fn sampling_rule(&self, bits: u32) -> (u64, PacketSamplingRule) {
        let number_bits = bits.min(u16::BITS);
        let number_mask = (1 << number_bits) - 1;
        match self.kind {
            PtpRequestKind::Delay | PtpRequestKind::Nsm => {
                let (sent_offset, received_offset) = (SEQUENCE_WORD, SEQUENCE_WORD);
                let (mask, extra) = (number_mask, None);
                let rule = PacketSamplingRule { sent_offset, received_offset, mask, extra };
                (1 << number_bits, rule)
            }
            PtpRequestKind::Unicast(_) => {
                // A granted message does not identify its request, so it is sampled by its own
                // sequence ID.
                let extra = NonReplySamplingRule {
                    reply_kind: MessageType::Signaling as u8,
                    offset: SEQUENCE_WORD,
                    mask: number_mask,
                };
                let (one_in, rule) = sampling_rule(bits, REQUESTER_LOW, TARGET_LOW);
                (one_in, PacketSamplingRule { extra: Some(extra), ..rule })
            }
        }
    }

    fn no_replies_advice(&self) -> Option<String> {
        let is_unicast_delay =
            self.kind == PtpRequestKind::Delay && self.replies_to_client_address();
        let contract = if is_unicast_delay {
            " and replies without unicast negotiation: a master of profile g8275.2 replies only to \
             clients with a grant for Delay_Resp, which 'horolog load ptp unicast' requests"
        } else {
            ""
        };
        Some(format!("check that it is a PTP master in domain {}{contract}", self.domain))
    }

    fn invalid_replies_advice(&self) -> &'static str {
        "they count as lost; the name after each number is the invalid field of the message"
    }

    /// Returns a note: a master whose time is not traceable may be synchronised.
    fn unsynchronised_description(&self) -> UnsynchronisedDescription {
        UnsynchronisedDescription {
            severity: Severity::Note,
            server: "the master",
            state: "its time is not traceable to a primary reference",
            advice: "its time may still be accurate, from its own clock or another server's",
        }
    }
}
