//! XDP engine of the server: attachment, clock, addresses and counters. [`crate::decide()`] decides
//! its replies and [`crate::decide_frame`] models them; no decision is repeated here.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use horolog_sys::explain::explain;
use horolog_sys::netlink::{InterfaceAddress, Link, Netlink, NetlinkError};
use horolog_xdp::{
    AdmissionRefusal, AttachMode, Attachment, ClockUpdate, ClockWriter, Interface,
    InterleavedHandling, PassedReason, ReplyPath, Responder, StationAddress, XdpError,
    reported_redirect_support,
};
use serde::Serialize;

use crate::af_xdp::{self, AfXdpQueue};
use crate::page::{ClockPage, PageSink, Pages};
use crate::{
    EngineSelection, HashKey, InterleavedEngine, ListenSet, ServerConfig, XdpReply,
    responder_settings,
};

/// Interval at which this host's addresses are read again.
const ADDRESSES_EVERY: Duration = Duration::from_secs(1);

/// Reason for which the XDP engine is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum XdpEngineError {
    /// Program or attachment that the kernel refused.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// Failure to find an interface or to read this host's addresses.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Named interface that cannot carry requests to the listen addresses.
    #[error(
        "interface '{0}' is not Ethernet, so XDP is unavailable there; omit it from --interface or \
         use --engine socket"
    )]
    NotEthernet(String),
    /// No interface that matches the listen addresses.
    #[error(
        "no Ethernet interface that is up has an address of --listen, so XDP is unavailable; name \
         an interface with --interface"
    )]
    NoInterface,
    /// Failure to obtain random numbers for a key.
    #[error("cannot read random numbers from the kernel: {why}", why = explain(.0))]
    Random(#[source] io::Error),
}

/// Interface on which XDP answers, as reported by `horolog status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct XdpInterface {
    /// Interface name.
    pub interface: String,
    /// Mode: `native` or `generic`.
    pub mode: &'static str,
}

/// Counts of the XDP engine, as reported by `horolog status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct XdpCounts {
    /// Requests answered over IPv4, including kisses.
    pub answered_ipv4: u64,
    /// Requests answered over IPv6, including kisses.
    pub answered_ipv6: u64,
    /// Requests answered in interleaved mode, part of the two above.
    pub answered_interleaved: u64,
    /// Requests answered in symmetric passive mode (2), part of the first two.
    pub answered_symmetric: u64,
    /// Requests admitted by limits and lists; 0 if there are none.
    pub admitted: u64,
    /// Requests dropped by limits and lists, by reason.
    pub dropped: Dropped,
    /// Kisses sent, by code.
    pub kisses: Kisses,
    /// PTP delay requests answered.
    pub answered_ptp: u64,
    /// PTP NetSync Monitor requests answered.
    pub answered_ptp_monitor: u64,
    /// Requests longer than a header that were redirected to threads of this process, bypassing the
    /// network stack; their outcomes are among the counters of the sockets.
    pub to_af_xdp: u64,
    /// Frames passed to the network stack, by reason.
    pub passed: Passed,
}

impl XdpCounts {
    /// Returns the number of answered requests.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered_ipv4 + self.answered_ipv6
    }
}

/// Frames passed to the network stack, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Passed {
    /// Destination address and port not served here.
    pub not_ntp: u64,
    /// Inconsistent lengths, wrong IPv4 checksum, or trailing bytes.
    pub malformed: u64,
    /// Fragments of packets.
    pub fragment: u64,
    /// Source that must not be answered, or group address.
    pub address: u64,
    /// Payload that is not exactly one NTP header.
    pub length: u64,
    /// Version or mode that is not a plain client request.
    pub request: u64,
    /// Expired clock page.
    pub no_clock: u64,
    /// Requests that may be in interleaved mode, on interfaces where the sockets answer them.
    pub interleaved: u64,
}

/// Requests dropped by limits and lists, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Dropped {
    /// Requests in excess of the client's rate limit.
    pub limited: u64,
    /// Requests denied by the lists.
    pub denied: u64,
    /// Requests in excess of the limit for new clients.
    pub new_clients: u64,
}

/// Kisses sent, by code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Kisses {
    /// Kisses to clients in excess of their rate limit.
    pub rate: u64,
    /// Kisses to clients denied by the lists.
    pub deny: u64,
}

/// Started XDP engine, with its sink and devices.
pub(crate) struct StartedEngine {
    /// XDP engine.
    pub(crate) body: XdpEngine,
    /// Sink for its pages.
    pub(crate) sink: Box<dyn PageSink>,
    /// Devices that receive redirected requests, which are answered from there.
    pub(crate) to_af_xdp: Vec<AfXdpQueue>,
}

/// Attached XDP engine; dropping it detaches the program from every interface.
pub(crate) struct XdpEngine {
    attachments: Vec<Attachment>,
    responder: Arc<Responder>,
    /// Failures to attach or to redirect.
    refusals: Vec<XdpError>,
}

impl std::fmt::Debug for XdpEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpBody").field("places", &self.interfaces()).finish_non_exhaustive()
    }
}

impl XdpEngine {
    /// Loads the program and attaches it to the configured interfaces, or to all that have a listen
    /// address. It answers once pages are published to the returned sink. `hardware` returns true
    /// if the sockets have hardware transmit timestamps on the interface of this name.
    pub(crate) fn start(
        config: &ServerConfig,
        shared: &SharedListen,
        hardware: impl Fn(&str) -> bool,
    ) -> Result<StartedEngine, XdpEngineError> {
        let mut netlink = Netlink::open()?;
        let addresses = netlink.addresses()?;
        let all = shared.load().all();
        let links = links(&mut netlink, &all, config, &addresses)?;
        let mode = if config.xdp_generic { AttachMode::Generic } else { AttachMode::Native };
        let key = HashKey::random().map_err(XdpEngineError::Random)?;
        let mut settings = responder_settings(key, &config.limits, &config.interleaved);
        let uses_af_xdp = config.uses_af_xdp();
        if uses_af_xdp {
            settings.af_xdp_queues = links.iter().map(|link| af_xdp::queues(&link.name)).sum();
        }
        // After the drivers, copies of a frame would share its bytes.
        settings.ptp_monitor =
            config.ptp.is_on() && config.ptp.monitor && mode == AttachMode::Native;
        let (responder, clock) = Responder::load(&settings)?;
        responder.set_limits(&config.limits.rules(), &config.limits.listed())?;
        if config.ptp.is_on() {
            responder.chain_ptp()?;
        }
        let (mut attachments, mut refusals) = (Vec::new(), Vec::new());
        for link in links {
            let path = reply_path(config.xdp_reply, &link);
            let interleaved = interleaved_requests(config, hardware(&link.name));
            if is_deaf(config, mode, path, link.index) {
                refusals.push(XdpError::PeerWithoutXdp { interface: link.name });
                continue;
            }
            let interface = Interface { index: link.index, name: link.name };
            match responder.attach(&interface, mode, path, interleaved) {
                Ok(attachment) => attachments.push(attachment),
                Err(error) => refusals.push(error),
            }
            if settings.ptp_monitor {
                responder.enable_monitor(interface.index)?;
            }
        }
        // If none was named, an unsuitable interface does not prevent the use of the others.
        let all_wanted = config.engine == EngineSelection::Xdp || !config.interfaces.is_empty();
        if (all_wanted || attachments.is_empty()) && !refusals.is_empty() {
            return Err(refusals.swap_remove(0).into());
        }
        let mut handed_over = Vec::new();
        if uses_af_xdp {
            for attachment in &attachments {
                // The program may pass more frames than necessary, never fewer.
                match af_xdp::open(&responder, attachment, handed_over.len() as u32) {
                    Ok(devices) => handed_over.extend(devices),
                    Err(error) => refusals.push(error),
                }
            }
        }
        let responder = Arc::new(responder);
        let listeners = XdpListeners { listen: Arc::clone(shared), ..XdpListeners::default() };
        let mut sink = XdpPageSink {
            clock,
            responder: Arc::clone(&responder),
            netlink,
            listeners,
            addresses_read_at: None,
        };
        let all_links = sink.netlink.links()?;
        sink.listen(&addresses, &all_links)?;
        Ok(StartedEngine {
            body: Self { attachments, responder, refusals },
            sink: Box::new(sink),
            to_af_xdp: handed_over,
        })
    }

    /// Detaches the program from every interface.
    pub(crate) fn detach(&mut self) {
        self.attachments.clear();
    }

    /// Returns the reasons for which it does not answer on suitable interfaces, in one line; `None`
    /// if it answers on all.
    pub(crate) fn refusals(&self) -> Option<String> {
        let reasons: Vec<String> = self.refusals.iter().map(ToString::to_string).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Returns the interfaces on which it answers.
    pub(crate) fn interfaces(&self) -> Vec<XdpInterface> {
        let to_interface = |attachment: &Attachment| XdpInterface {
            interface: attachment.interface().name.clone(),
            mode: mode_name(attachment.mode()),
        };
        self.attachments.iter().map(to_interface).collect()
    }

    /// Returns true if it answers on the interface of this name.
    pub(crate) fn is_at(&self, interface: &str) -> bool {
        self.attachments.iter().any(|attachment| attachment.interface().name == interface)
    }

    /// Returns the program, for updates of limits and PTP responses.
    pub(crate) fn responder(&self) -> Arc<Responder> {
        Arc::clone(&self.responder)
    }

    /// Returns the number of requests answered on each core, by core number.
    pub(crate) fn answered_by_core(&self) -> Vec<u64> {
        self.responder.answered_by_core()
    }

    /// Returns the counts so far.
    pub(crate) fn totals(&self) -> XdpCounts {
        let counts = self.responder.counts();
        let mut passed = Passed::default();
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
        let (mut dropped, mut kisses) = (Dropped::default(), Kisses::default());
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
        InterleavedEngine::Socket => InterleavedHandling::Pass,
        InterleavedEngine::Auto if hardware => InterleavedHandling::Pass,
        InterleavedEngine::Auto | InterleavedEngine::Xdp => InterleavedHandling::Answer,
    }
}

const fn mode_name(mode: AttachMode) -> &'static str {
    match mode {
        AttachMode::Native => "native",
        AttachMode::Generic => "generic",
    }
}

/// Returns the configured interfaces, or all that have a listen address, and those that PTP is
/// served on.
fn links(
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
            !ListenSet::resolve(listen, &own).addresses().is_empty()
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

fn reply_path(wanted: XdpReply, link: &Link) -> ReplyPath {
    match wanted {
        XdpReply::Auto if link.kind.as_deref() == Some("veth") => ReplyPath::Redirect,
        XdpReply::Auto | XdpReply::Transmit => ReplyPath::Transmit,
        XdpReply::Redirect => ReplyPath::Redirect,
    }
}

/// Returns true if replies on the interface with this index would be lost. If XDP is required, it
/// is used nevertheless: the other end may be set up later.
fn is_deaf(config: &ServerConfig, mode: AttachMode, path: ReplyPath, interface: u32) -> bool {
    let replies = config.engine == EngineSelection::Auto && path == ReplyPath::Redirect;
    replies && mode == AttachMode::Native && reported_redirect_support(interface) == Some(false)
}

/// Returns true for Ethernet. The loopback interface has a MAC address of zeroes.
fn is_ethernet(link: &Link) -> bool {
    link.mac.is_some_and(|mac| mac != [0; 6])
}

/// Listen addresses, by the timeline that they serve.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ListenAddresses {
    /// Addresses of UTC, with its steps.
    pub(crate) stepped: Vec<SocketAddr>,
    /// Addresses of smeared time.
    pub(crate) smeared: Vec<SocketAddr>,
}

impl ListenAddresses {
    /// Returns all addresses.
    pub(crate) fn all(&self) -> Vec<SocketAddr> {
        [&self.stepped[..], &self.smeared].concat()
    }
}

/// Listen addresses, which a reload may replace.
pub(crate) type SharedListen = Arc<ArcSwap<ListenAddresses>>;

/// Listen addresses, and the addresses of this host stored in the program.
#[derive(Default)]
struct XdpListeners {
    listen: SharedListen,
    known: BTreeSet<SocketAddr>,
    broadcasts: BTreeSet<Ipv4Addr>,
    stations: BTreeSet<StationAddress>,
}

/// Removes entries that are no longer `wanted`, and adds new ones.
fn renew<T: Ord + Copy>(
    known: &mut BTreeSet<T>,
    wanted: BTreeSet<T>,
    change: impl Fn(T, bool) -> Result<(), XdpError>,
) -> Result<(), XdpError> {
    known.difference(&wanted).try_for_each(|&gone| change(gone, false))?;
    wanted.difference(known).try_for_each(|&new| change(new, true))?;
    *known = wanted;
    Ok(())
}

/// Sink that publishes pages to the program, and updates this host's addresses when they change.
struct XdpPageSink {
    clock: ClockWriter,
    responder: Arc<Responder>,
    netlink: Netlink,
    listeners: XdpListeners,
    /// Time of the last address lookup, and its list.
    addresses_read_at: Option<(Instant, Arc<ListenAddresses>)>,
}

impl XdpPageSink {
    fn listen(&mut self, addresses: &[InterfaceAddress], links: &[Link]) -> Result<(), XdpError> {
        let own: Vec<IpAddr> = addresses.iter().map(|own| own.prefix.address()).collect();
        let Self { responder, listeners, .. } = self;
        let listen = listeners.listen.load_full();
        let set = ListenSet::resolve(&listen.stepped, &own).with_smeared(&listen.smeared, &own);
        // Before the addresses, so that nothing is answered that must not be.
        let broadcasts = addresses.iter().filter_map(|own| own.prefix.broadcast()).collect();
        renew(&mut listeners.broadcasts, broadcasts, |address, refuse| {
            responder.set_broadcast(address, refuse)
        })?;
        let stations = links.iter().filter_map(StationAddress::from_link).collect();
        renew(&mut listeners.stations, stations, |station, serve| {
            responder.set_station(station, serve)
        })?;
        let wanted = set.addresses().iter().copied().collect();
        renew(&mut listeners.known, wanted, |at, serve| {
            if serve {
                responder.answer_with_timeline(at, set.timeline(at))
            } else {
                responder.stop_answering(at)
            }
        })?;
        self.addresses_read_at = Some((Instant::now(), listen));
        Ok(())
    }
}

impl PageSink for XdpPageSink {
    fn publish(&mut self, pages: &Pages) -> io::Result<()> {
        self.clock.publish(&clock_update(&pages.stepped), &clock_update(&pages.smeared));
        let due = self.addresses_read_at.as_ref().is_none_or(|(read_at, listen)| {
            read_at.elapsed() >= ADDRESSES_EVERY || *listen != *self.listeners.listen.load()
        });
        if due {
            let addresses = self.netlink.addresses().map_err(io::Error::other)?;
            let links = self.netlink.links().map_err(io::Error::other)?;
            self.listen(&addresses, &links).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// Returns the clock update of a page for the program.
#[must_use]
pub fn clock_update(page: &ClockPage) -> ClockUpdate {
    let variables = &page.variables;
    ClockUpdate {
        timebase: page.timebase,
        leap: variables.leap as u8,
        leap_after: page.leap_after as u8,
        stratum: variables.packet_stratum(),
        precision: variables.precision,
        root_delay: variables.root_delay.to_bits(),
        root_dispersion: variables.root_dispersion.to_bits(),
        reference_id: variables.reference_id,
        reference: variables.reference.to_bits(),
        tai_minus_utc_s: page.tai_minus_utc_s,
    }
}
