//! Kinds of requests: what the clients of a load, or of one part of a mix, send. The command that
//! starts a run makes the value, and everything after it takes the protocol from it.
//!
//! Differences between the modes of requests are in [`RequestBehaviour`], implemented once for
//! each. It is asked when a run or a trial is prepared and for findings, never for each packet.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use horolog_io::{PacketSamplingRule, RemoteEndSelection};
use horolog_record::{LoadEngineKind as Kind, RequestMode, Severity};
use horolog_sys::hardware_timestamps::TimestampPurpose;
use horolog_xdp::RequestProtocol;

use crate::capture;
use crate::compliant_clients::CompliantClientOptions;
use crate::engine::packet::PacketEngine;
use crate::engine::udp::UdpEngine;
use crate::engine::{EngineError, LoadEngine};
use crate::error::LoadError;
use crate::nts::{NtsError, NtsSessions};
use crate::options::LoadOptions;
use crate::plan::RunPlan;
use crate::ptp::PtpRequestOptions;
use crate::request_tracker::{ExpectedReplies, PtpReplyCounts};
use crate::trailer::RequestTrailer;

mod echo;
mod ntp;
mod nts;
mod ptp;

pub use echo::EchoRequests;
pub use ntp::NtpRequestOptions;
pub use nts::NtsSessionSource;

/// NTP version of requests whose mode requires the current one.
const CURRENT_VERSION: u8 = 4;

/// Protocol and options of requests.
#[derive(Clone, Debug)]
pub enum RequestKind {
    /// NTP requests in basic or interleaved mode.
    Ntp(NtpRequestOptions),
    /// NTP requests of which all or a share are authenticated by NTS.
    Nts(NtsSessionSource),
    /// Requests to a PTP master.
    Ptp(PtpRequestOptions),
    /// Requests to a reflector.
    Echo(EchoRequests),
}

/// Behaviour of one mode of requests. The defaults are those of NTP clients that keep no state
/// between two requests.
pub(crate) trait RequestBehaviour {
    /// Returns the mode for the record.
    fn mode(&self) -> RequestMode;

    /// Refuses options of the run that the mode excludes.
    fn check_options(&self, _options: &LoadOptions) -> Result<(), LoadError> {
        Ok(())
    }

    /// Returns why BPF programs cannot send such requests, as reason and remedy; `None` if they
    /// can, or if [`RequestBehaviour::kernel_protocol`] decides.
    fn unsupported_by_xdp(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Returns the protocol by which BPF programs send such requests; otherwise the reason and the
    /// remedy.
    fn kernel_protocol(&self) -> Result<RequestProtocol, (&'static str, &'static str)> {
        Ok(RequestProtocol::Ntp)
    }

    /// Opens the engine over sockets or packet sockets for a run of such requests.
    fn open_engine(&self, kind: Kind, plan: &RunPlan) -> Result<Box<dyn LoadEngine>, EngineError> {
        Ok(match kind {
            Kind::Udp => Box::new(UdpEngine::open(plan)?),
            Kind::Packet | Kind::Xdp => Box::new(PacketEngine::open(plan)?),
        })
    }

    /// Returns the requests of compliant clients beside a load of this mode, which keep no state.
    fn compliant_requests(&self) -> RequestKind;

    /// Returns the reason why such compliant clients cannot send their requests, for the user;
    /// `None` if they can.
    fn unsupported_as_compliant(&self, _options: &CompliantClientOptions) -> Option<&'static str> {
        None
    }

    /// Returns the port at both ends of requests; `None` for the target's port and one port for
    /// each lane.
    fn fixed_port(&self) -> Option<u16> {
        None
    }

    /// Returns the source ports of replies from a target with this port.
    fn reply_ports(&self, target_port: u16) -> RangeInclusive<u16> {
        target_port..=target_port
    }

    /// Returns the multicast address of requests to `target`; `None` with unicast.
    fn multicast_group(&self, _target: IpAddr) -> Option<IpAddr> {
        None
    }

    /// Returns true if requests are sent over Ethernet without IP.
    fn is_over_ethernet(&self) -> bool {
        false
    }

    /// Returns what limits a run to one client, with or without simulated clients; `None` if
    /// nothing does.
    fn single_client_reason(&self, _is_simulated: bool) -> Option<&'static str> {
        None
    }

    /// Returns the number of clients that the mode determines; `None` if it determines none.
    fn client_count(&self) -> Option<u32> {
        None
    }

    /// Returns true if a client's request depends on the reply to its previous one.
    fn depends_on_replies(&self) -> bool {
        false
    }

    /// Returns true if replies carry a transmit timestamp, so that its offset can be measured.
    fn reports_transmit_time(&self) -> bool {
        true
    }

    /// Returns the packets that a NIC must timestamp on receipt.
    fn timestamp_purpose(&self) -> TimestampPurpose {
        TimestampPurpose::Ntp
    }

    /// Returns the NTP version of requests.
    fn version(&self) -> u8 {
        CURRENT_VERSION
    }

    /// Returns the trailer of the requests of lane `lane` of `lanes`; `None` for plain requests.
    fn request_trailer(
        &self,
        _lane: (usize, usize),
    ) -> Result<Option<RequestTrailer>, EngineError> {
        Ok(None)
    }

    /// Returns the values that replies to lane `lane` of `lanes` are verified against, in a trial
    /// with `clients` clients.
    fn expected_replies(
        &self,
        plan: &RunPlan,
        clients: u32,
        lane: (usize, usize),
    ) -> ExpectedReplies;

    /// Returns the initial counts of PTP replies by kind; `None` if replies are not PTP messages.
    fn ptp_counts(&self) -> Option<PtpReplyCounts> {
        None
    }

    /// Returns the addresses and ports between which packets are captured.
    fn captured_ends(&self, plan: &RunPlan) -> RemoteEndSelection {
        RemoteEndSelection::with_udp_remote(plan.target)
    }

    /// Returns the sampling ratio of a capture, 2^`bits` as far as the packets permit, and the rule
    /// that selects one request in so many with its reply.
    fn sampling_rule(&self, bits: u32) -> (u64, PacketSamplingRule) {
        capture::ntp_sampling_rule(bits)
    }

    /// Returns what to check if no request was answered, beside route, address and firewall.
    fn no_replies_advice(&self) -> Option<String> {
        None
    }

    /// Returns the advice on invalid replies.
    fn invalid_replies_advice(&self) -> &'static str {
        "they count as lost; the name after each number is the field that does not match the \
         request, for example the length or the server's version"
    }

    /// Returns how a server that reports itself as unsynchronised is described.
    fn unsynchronised_description(&self) -> UnsynchronisedDescription {
        UnsynchronisedDescription {
            severity: Severity::Warning,
            server: "the server",
            state: "it is not synchronised",
            advice: "clients would not use its time; its speed may differ when synchronised",
        }
    }
}

/// Description of servers that report themselves as unsynchronised.
pub(crate) struct UnsynchronisedDescription {
    pub(crate) severity: Severity,
    /// Name of the server in a sentence.
    pub(crate) server: &'static str,
    /// Reported state, as a clause.
    pub(crate) state: &'static str,
    pub(crate) advice: &'static str,
}

impl From<NtpRequestOptions> for RequestKind {
    fn from(options: NtpRequestOptions) -> Self {
        Self::Ntp(options)
    }
}

impl From<NtsSessionSource> for RequestKind {
    fn from(source: NtsSessionSource) -> Self {
        Self::Nts(source)
    }
}

impl From<PtpRequestOptions> for RequestKind {
    fn from(options: PtpRequestOptions) -> Self {
        Self::Ptp(options)
    }
}

impl From<EchoRequests> for RequestKind {
    fn from(requests: EchoRequests) -> Self {
        Self::Echo(requests)
    }
}

impl RequestKind {
    /// Returns NTP requests with these options, authenticated if `nts` is given. An error if the
    /// options exclude NTS.
    pub fn ntp(
        options: NtpRequestOptions,
        nts: Option<NtsSessionSource>,
    ) -> Result<Self, LoadError> {
        let Some(nts) = nts else { return Ok(Self::Ntp(options)) };
        options.check_version()?;
        if options.version != CURRENT_VERSION {
            return Err(NtsError::Version(options.version).into());
        }
        if options.interleaved {
            return Err(NtsError::Interleaved.into());
        }
        if !options.trailer.is_empty() {
            return Err(NtsError::Trailer.into());
        }
        Ok(Self::Nts(nts))
    }

    /// Returns the behaviour of the requests' mode.
    pub(crate) const fn behaviour(&self) -> &dyn RequestBehaviour {
        match self {
            Self::Ntp(options) => options,
            Self::Nts(source) => source,
            Self::Ptp(options) => options,
            Self::Echo(requests) => requests,
        }
    }

    /// Returns the mode for the record.
    #[must_use]
    pub fn mode(&self) -> RequestMode {
        self.behaviour().mode()
    }

    /// Returns the options of requests to a PTP master; `None` for other requests.
    #[must_use]
    pub const fn ptp(&self) -> Option<PtpRequestOptions> {
        match self {
            Self::Ptp(options) => Some(*options),
            _ => None,
        }
    }

    /// Returns the existing NTS sessions that authenticate requests.
    #[must_use]
    pub const fn sessions(&self) -> Option<&Arc<NtsSessions>> {
        match self {
            Self::Nts(source) => source.existing(),
            _ => None,
        }
    }

    /// Returns these requests with existing NTS sessions: runs the NTS-KE exchanges that they
    /// require, for a load on `target` by `clients` clients or the default number.
    pub(crate) fn with_sessions(
        &self,
        options: &LoadOptions,
        target: SocketAddr,
        clients: Option<u32>,
    ) -> Result<Self, NtsError> {
        match self {
            Self::Nts(source) => source.open(options, target, clients).map(Self::Nts),
            _ => Ok(self.clone()),
        }
    }
}
