//! XDP engine of the server: loading of the program and its attachment to interfaces. The program
//! implements [`crate::decide()`]; [`crate::decide_frame`] is its reference model.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use horolog_source::ClockPageSink;
use horolog_sys::explain::explain;
use horolog_sys::netlink::{InterfaceAddress, Link, Netlink, NetlinkError};
use horolog_xdp::{
    AdmissionRefusal, AttachMode, Attachment, Interface, InterleavedHandling, PassedReason,
    Responder, XdpError, XdpReplySendAction, reported_redirect_support,
};

use super::clock_page_sink::XdpClockPageSink;
use super::counts::{XdpCounts, XdpDropCounts, XdpInterfaceStatus, XdpKissCounts, XdpPassCounts};
use super::queues::{AfXdpQueue, open_queues, receive_queue_count};
use crate::config::{EngineSelection, InterleavedEngineSelection, ServerConfig, XdpTransmitMethod};
use crate::reply::address_hash::AddressHashKey;
use crate::reply::limits::responder_settings;
use crate::sockets::listen::{ListenAddressSet, SharedListenAddresses};

/// Reason for which the XDP engine is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum XdpEngineError {
    /// Program that the kernel refused to load or attach.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// Failure to find an interface or to read this host's addresses.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Named interface that is not Ethernet.
    #[error(
        "interface '{0}' is not Ethernet, so XDP is unavailable there; omit it from --interface or \
         use --engine socket"
    )]
    NotEthernet(String),
    /// No usable interface with a listen address.
    #[error(
        "no Ethernet interface that is up has an address of --listen, so XDP is unavailable; name \
         an interface with --interface"
    )]
    NoInterface,
    /// Failure to obtain random numbers for a key.
    #[error("cannot read random numbers from the kernel: {why}", why = explain(.0))]
    Random(#[source] io::Error),
}

/// XDP engine that has been started, with the sink and the `AF_XDP` sockets that belong to it.
pub(crate) struct StartedXdpEngine {
    /// XDP engine.
    pub(crate) engine: XdpEngine,
    /// Sink for clock pages, from which the engine answers.
    pub(crate) sink: Box<dyn ClockPageSink>,
    /// `AF_XDP` sockets that receive redirected requests.
    pub(crate) af_xdp_queues: Vec<AfXdpQueue>,
}

/// Attached XDP engine. Dropping it detaches the program from all interfaces.
pub(crate) struct XdpEngine {
    attachments: Vec<Attachment>,
    responder: Arc<Responder>,
    /// Failures to attach the program or to open `AF_XDP` sockets.
    refusals: Vec<XdpError>,
}

impl std::fmt::Debug for XdpEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpEngine").field("interfaces", &self.interfaces()).finish_non_exhaustive()
    }
}

impl XdpEngine {
    /// Loads the program and attaches it to the configured interfaces, or to all that are Ethernet,
    /// up and have a listen address, and to those of PTP. The program answers once pages are
    /// published to the returned sink. `hardware` returns true if the sockets have hardware
    /// transmit timestamps on the named interface. Unless interfaces are named or `--engine xdp` is
    /// given, some may fail.
    pub(crate) fn start(
        config: &ServerConfig,
        shared: &SharedListenAddresses,
        hardware: impl Fn(&str) -> bool,
    ) -> Result<StartedXdpEngine, XdpEngineError> {
        let mut netlink = Netlink::open()?;
        let addresses = netlink.addresses()?;
        let all = shared.load().all_addresses();
        let links = links_to_attach(&mut netlink, &all, config, &addresses)?;
        let mode = if config.xdp_generic { AttachMode::Generic } else { AttachMode::Native };
        let key = AddressHashKey::random().map_err(XdpEngineError::Random)?;
        let mut settings = responder_settings(key, &config.limits, &config.interleaved);
        let uses_af_xdp = config.uses_af_xdp();
        if uses_af_xdp {
            settings.af_xdp_queues = links.iter().map(|link| receive_queue_count(&link.name)).sum();
        }
        // In generic mode, copies of a frame share its bytes, so that Monitor responses are
        // impossible.
        settings.ptp_monitor =
            config.ptp.is_on() && config.ptp.monitor && mode == AttachMode::Native;
        let (responder, clock) = Responder::load(&settings)?;
        responder.set_limits(&config.limits.rules(), &config.limits.listed_prefixes())?;
        if config.ptp.is_on() {
            responder.chain_ptp()?;
        }
        let (mut attachments, mut refusals) = (Vec::new(), Vec::new());
        for link in links {
            let path = reply_path(config.xdp_reply, &link);
            let interleaved = interleaved_requests(config, hardware(&link.name));
            if is_losing_replies(config, mode, path, link.index) {
                refusals.push(XdpError::PeerWithoutXdp { interface: link.name });
                continue;
            }
            let interface = Interface { index: link.index, name: link.name };
            let attached = responder.attach(&interface, mode, path, interleaved);
            let enabled = attached.and_then(|attachment| {
                if settings.ptp_monitor {
                    responder.enable_monitor(interface.index)?;
                }
                Ok(attachment)
            });
            match enabled {
                Ok(attachment) => attachments.push(attachment),
                Err(error) => refusals.push(error),
            }
        }
        // If no interface was named, an unsuitable one does not prevent the use of the others.
        let all_wanted = config.engine == EngineSelection::Xdp || !config.interfaces.is_empty();
        if (all_wanted || attachments.is_empty()) && !refusals.is_empty() {
            return Err(refusals.swap_remove(0).into());
        }
        let mut af_xdp_queues = Vec::new();
        if uses_af_xdp {
            for attachment in &attachments {
                // Without these sockets the program passes redirected requests to the network
                // stack.
                match open_queues(&responder, attachment, af_xdp_queues.len() as u32) {
                    Ok(devices) => af_xdp_queues.extend(devices),
                    Err(error) => refusals.push(error),
                }
            }
        }
        let responder = Arc::new(responder);
        let all_links = netlink.links()?;
        let mut sink = XdpClockPageSink::new(clock, Arc::clone(&responder), netlink, shared);
        sink.listen(&addresses, &all_links)?;
        Ok(StartedXdpEngine {
            engine: Self { attachments, responder, refusals },
            sink: Box::new(sink),
            af_xdp_queues,
        })
    }

    /// Detaches the program from every interface.
    pub(crate) fn detach(&mut self) {
        self.attachments.clear();
    }

    /// Returns the reasons for which the engine does not answer on some interfaces or has no
    /// `AF_XDP` sockets there, in one line; `None` if there are none.
    pub(crate) fn refusals(&self) -> Option<String> {
        let reasons: Vec<String> = self.refusals.iter().map(ToString::to_string).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Returns the interfaces on which the program is attached.
    pub(crate) fn interfaces(&self) -> Vec<XdpInterfaceStatus> {
        let to_interface = |attachment: &Attachment| XdpInterfaceStatus {
            interface: attachment.interface().name.clone(),
            mode: mode_name(attachment.mode()).into(),
        };
        self.attachments.iter().map(to_interface).collect()
    }

    /// Returns the responder if its program is attached to the named interface.
    pub(crate) fn responder_on(&self, interface: &str) -> Option<Arc<Responder>> {
        let is_on = |attachment: &Attachment| attachment.interface().name == interface;
        self.attachments.iter().any(is_on).then(|| self.responder())
    }

    /// Returns the responder, for updates of limits and PTP ports.
    pub(crate) fn responder(&self) -> Arc<Responder> {
        Arc::clone(&self.responder)
    }

    /// Returns the number of NTP requests answered on each core, indexed by core number.
    pub(crate) fn answered_by_core(&self) -> Vec<u64> {
        self.responder.answered_by_core()
    }

    /// Returns the present counts of the responder, by name.
    pub(crate) fn totals(&self) -> XdpCounts {
        let counts = self.responder.counts();
        let mut passed = XdpPassCounts::default();
        for (reason, count) in PassedReason::ALL.into_iter().zip(counts.passed) {
            let field = match reason {
                PassedReason::NotNtp => &mut passed.not_ntp,
                PassedReason::Malformed => &mut passed.malformed,
                PassedReason::Fragment => &mut passed.fragment,
                PassedReason::Address => &mut passed.address,
                PassedReason::Length => &mut passed.length,
                PassedReason::Request => &mut passed.request,
                PassedReason::NoClock => &mut passed.no_clock,
                PassedReason::Interleaved => &mut passed.interleaved,
            };
            *field = count;
        }
        let (mut dropped, mut kisses) = (XdpDropCounts::default(), XdpKissCounts::default());
        for (refusal, count) in AdmissionRefusal::ALL.into_iter().zip(counts.refused) {
            let field = match refusal {
                AdmissionRefusal::Limited => &mut dropped.limited,
                AdmissionRefusal::Denied => &mut dropped.denied,
                AdmissionRefusal::NewClients => &mut dropped.new_clients,
                AdmissionRefusal::KissRate => &mut kisses.rate,
                AdmissionRefusal::KissDeny => &mut kisses.deny,
            };
            *field = count;
        }
        XdpCounts {
            answered_ipv4: counts.answered_ipv4,
            answered_ipv6: counts.answered_ipv6,
            answered_interleaved: counts.answered_interleaved,
            answered_symmetric: counts.answered_symmetric,
            admitted: counts.admitted,
            dropped,
            kisses,
            answered_ptp: counts.answered_ptp,
            answered_ptp_monitor: counts.answered_ptp_monitor,
            to_af_xdp: counts.to_af_xdp,
            passed,
        }
    }
}

/// Returns the handling of requests that may be in interleaved mode on an interface.
const fn interleaved_requests(config: &ServerConfig, hardware: bool) -> InterleavedHandling {
    match config.interleaved.engine {
        _ if config.interleaved.clients == 0 => InterleavedHandling::Answer,
        InterleavedEngineSelection::Socket => InterleavedHandling::Pass,
        InterleavedEngineSelection::Auto if hardware => InterleavedHandling::Pass,
        InterleavedEngineSelection::Auto | InterleavedEngineSelection::Xdp => {
            InterleavedHandling::Answer
        }
    }
}

const fn mode_name(mode: AttachMode) -> &'static str {
    match mode {
        AttachMode::Native => "native",
        AttachMode::Generic => "generic",
    }
}

/// Returns the interfaces to attach the program to: the configured ones, or all that are Ethernet,
/// up and have a listen address; and those of PTP. Fails if one of them is not Ethernet, or there
/// is none.
fn links_to_attach(
    netlink: &mut Netlink,
    listen: &[SocketAddr],
    config: &ServerConfig,
    addresses: &[InterfaceAddress],
) -> Result<Vec<Link>, XdpEngineError> {
    let mut chosen: Vec<Link> = if config.interfaces.is_empty() {
        let carries = |link: &Link| {
            let own: Vec<IpAddr> = addresses
                .iter()
                .filter(|address| address.index == link.index)
                .map(|address| address.prefix.address())
                .collect();
            !ListenAddressSet::resolve(listen, &own).addresses().is_empty()
        };
        let links = netlink.links()?;
        links.into_iter().filter(|link| link.up && is_ethernet(link) && carries(link)).collect()
    } else {
        let named = config.interfaces.iter();
        let links: Result<_, _> = named.map(|name| netlink.link_by_name(name)).collect();
        links?
    };
    for name in &config.ptp.interfaces {
        if !chosen.iter().any(|link| link.name == *name) {
            chosen.push(netlink.link_by_name(name)?);
        }
    }
    if let Some(link) = chosen.iter().find(|link| !is_ethernet(link)) {
        return Err(XdpEngineError::NotEthernet(link.name.clone()));
    }
    if chosen.is_empty() {
        return Err(XdpEngineError::NoInterface);
    }
    Ok(chosen)
}

fn reply_path(wanted: XdpTransmitMethod, link: &Link) -> XdpReplySendAction {
    match wanted {
        XdpTransmitMethod::Auto if link.kind.as_deref() == Some("veth") => {
            XdpReplySendAction::Redirect
        }
        XdpTransmitMethod::Auto | XdpTransmitMethod::Transmit => XdpReplySendAction::Transmit,
        XdpTransmitMethod::Redirect => XdpReplySendAction::Redirect,
    }
}

/// Returns true if replies on this interface would be lost because the peer of a veth link accepts
/// no redirected frames. With `--engine xdp` the interface is used in any case, because the peer
/// may be set up later.
fn is_losing_replies(
    config: &ServerConfig,
    mode: AttachMode,
    path: XdpReplySendAction,
    interface: u32,
) -> bool {
    let replies = config.engine == EngineSelection::Auto && path == XdpReplySendAction::Redirect;
    replies && mode == AttachMode::Native && reported_redirect_support(interface) == Some(false)
}

/// Returns true if the interface has a MAC address other than zero, as Ethernet has; that of
/// loopback is zero.
fn is_ethernet(link: &Link) -> bool {
    link.mac.is_some_and(|mac| mac != [0; 6])
}
