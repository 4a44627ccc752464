//! XDP engine of the server: attachment of the program, and updates of its clock, addresses and
//! limits. The program implements [`crate::decide()`]; [`crate::decide_frame`] is its reference
//! model.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use horolog_io::XskDevice;
use horolog_source::{ClockPage, ClockPageSink, ClockPages};
use horolog_sys::ethtool;
use horolog_sys::explain::explain;
use horolog_sys::netlink::{InterfaceAddress, Link, Netlink, NetlinkError};
use horolog_xdp::{
    AdmissionRefusal, AttachMode, Attachment, ClockPageUpdate, Interface, InterleavedHandling,
    PassedReason, Responder, ResponderClockPageWriter, StationAddress, XdpError,
    XdpReplySendAction, XskDropCounter, XskSocket, reported_redirect_support,
};
use serde::{Deserialize, Serialize};

use crate::{
    AddressHashKey, EngineSelection, InterleavedEngineSelection, ListenAddressSet, ServerConfig,
    XdpTransmitMethod, responder_settings,
};

/// Interval at which this host's addresses are read.
const ADDRESSES_EVERY: Duration = Duration::from_secs(1);

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

/// Interface on which XDP answers, for `horolog status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct XdpInterfaceStatus {
    /// Interface name.
    pub interface: String,
    /// Attach mode: `native` or `generic`.
    pub mode: Cow<'static, str>,
}

/// Counts of the XDP engine, for `horolog status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XdpCounts {
    /// Requests answered over IPv4, including kisses.
    pub answered_ipv4: u64,
    /// Requests answered over IPv6, including kisses.
    pub answered_ipv6: u64,
    /// Requests answered in interleaved mode, part of `answered_ipv4` or `answered_ipv6`.
    pub answered_interleaved: u64,
    /// Requests answered in symmetric passive mode (2), part of `answered_ipv4` or `answered_ipv6`.
    pub answered_symmetric: u64,
    /// Requests admitted by rate limits and prefix lists; 0 without any.
    pub admitted: u64,
    /// Requests dropped by rate limits and prefix lists, by reason.
    pub dropped: XdpDropCounts,
    /// Kisses sent, by code.
    pub kisses: XdpKissCounts,
    /// PTP delay requests answered.
    pub answered_ptp: u64,
    /// PTP NetSync Monitor requests answered.
    pub answered_ptp_monitor: u64,
    /// Requests longer than a header that were redirected to `AF_XDP` sockets of this process.
    /// Their outcomes are among the counts of the socket engine.
    pub to_af_xdp: u64,
    /// Frames passed to the network stack, by reason.
    pub passed: XdpPassCounts,
}

impl XdpCounts {
    /// Returns the number of NTP requests answered, including kisses.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered_ipv4 + self.answered_ipv6
    }
}

/// Declares `by_name` for a struct of counts; a field that the list omits is a compile error.
macro_rules! counts_by_name {
    ($type:ty, $($name:ident),+) => {
        impl $type {
            /// Returns each count with its name in the status.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let Self { $($name),+ } = *self;
                [$((stringify!($name), $name)),+].into_iter()
            }
        }
    };
}

counts_by_name!(
    XdpPassCounts,
    not_ntp,
    malformed,
    fragment,
    address,
    length,
    request,
    no_clock,
    interleaved
);
counts_by_name!(XdpDropCounts, limited, denied, new_clients);
counts_by_name!(XdpKissCounts, rate, deny);

impl XdpDropCounts {
    /// Returns the number of requests dropped for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_name().map(|(_, count)| count).sum()
    }
}

/// Counts of frames passed to the network stack, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XdpPassCounts {
    /// Frame other than a UDP packet over IP to a listen address and port, or in a VLAN in which
    /// this host has no interface.
    pub not_ntp: u64,
    /// Inconsistent lengths, wrong checksum, or trailing bytes.
    pub malformed: u64,
    /// Fragments of packets over IPv4.
    pub fragment: u64,
    /// Source address that is not answered, or multicast or broadcast address.
    pub address: u64,
    /// Length other than that of an NTP header.
    pub length: u64,
    /// NTP version or mode that XDP does not answer.
    pub request: u64,
    /// Valid requests for which the clock page had expired.
    pub no_clock: u64,
    /// Request that may be in interleaved mode, on an interface where the sockets answer those.
    pub interleaved: u64,
}

/// Counts of requests dropped by rate limits and prefix lists, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XdpDropCounts {
    /// Requests in excess of the client's rate limit.
    pub limited: u64,
    /// Requests denied by the lists.
    pub denied: u64,
    /// Requests in excess of the limit for new clients.
    pub new_clients: u64,
}

/// Counts of kisses sent, by kiss code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XdpKissCounts {
    /// Kisses to clients in excess of their rate limit.
    pub rate: u64,
    /// Kisses to clients denied by the lists.
    pub deny: u64,
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
        let listeners =
            XdpAddressTable { listen: Arc::clone(shared), ..XdpAddressTable::default() };
        let mut sink = XdpClockPageSink {
            clock,
            responder: Arc::clone(&responder),
            netlink,
            listeners,
            addresses_read_at: None,
        };
        let all_links = sink.netlink.links()?;
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

/// Listen addresses, by timeline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ListenAddressesByTimeline {
    /// Addresses at which stepped UTC is served.
    pub(crate) stepped: Vec<SocketAddr>,
    /// Addresses at which smeared UTC is served.
    pub(crate) smeared: Vec<SocketAddr>,
}

impl ListenAddressesByTimeline {
    /// Returns all listen addresses, those of stepped UTC first.
    pub(crate) fn all_addresses(&self) -> Vec<SocketAddr> {
        [&self.stepped[..], &self.smeared].concat()
    }
}

/// Listen addresses, which a reload replaces.
pub(crate) type SharedListenAddresses = Arc<ArcSwap<ListenAddressesByTimeline>>;

/// Listen addresses, and the addresses that are stored in the program's maps.
#[derive(Default)]
struct XdpAddressTable {
    listen: SharedListenAddresses,
    addresses: BTreeSet<SocketAddr>,
    broadcasts: BTreeSet<Ipv4Addr>,
    stations: BTreeSet<StationAddress>,
}

/// Removes stored entries that are not `wanted`, and adds those that are missing, by calling
/// `change` with true to add. After an error, `stored` is unchanged.
fn update_entries<T: Ord + Copy>(
    stored: &mut BTreeSet<T>,
    wanted: BTreeSet<T>,
    change: impl Fn(T, bool) -> Result<(), XdpError>,
) -> Result<(), XdpError> {
    stored.difference(&wanted).try_for_each(|&gone| change(gone, false))?;
    wanted.difference(stored).try_for_each(|&new| change(new, true))?;
    *stored = wanted;
    Ok(())
}

/// Sink that publishes clock pages to the program, and updates the addresses in its maps.
struct XdpClockPageSink {
    clock: ResponderClockPageWriter,
    responder: Arc<Responder>,
    netlink: Netlink,
    listeners: XdpAddressTable,
    /// Time when this host's addresses were read, and the listen addresses then.
    addresses_read_at: Option<(Instant, Arc<ListenAddressesByTimeline>)>,
}

impl XdpClockPageSink {
    fn listen(&mut self, addresses: &[InterfaceAddress], links: &[Link]) -> Result<(), XdpError> {
        let own: Vec<IpAddr> = addresses.iter().map(|own| own.prefix.address()).collect();
        let Self { responder, listeners, .. } = self;
        let listen = listeners.listen.load_full();
        let set =
            ListenAddressSet::resolve(&listen.stepped, &own).with_smeared(&listen.smeared, &own);
        // Before the addresses, so that no request to a broadcast address is answered.
        let broadcasts = addresses.iter().filter_map(|own| own.prefix.broadcast()).collect();
        update_entries(&mut listeners.broadcasts, broadcasts, |address, refuse| {
            responder.set_broadcast(address, refuse)
        })?;
        let stations = links.iter().filter_map(StationAddress::from_link).collect();
        update_entries(&mut listeners.stations, stations, |station, serve| {
            responder.set_station(station, serve)
        })?;
        let wanted = set.addresses().iter().copied().collect();
        update_entries(&mut listeners.addresses, wanted, |at, serve| {
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

impl ClockPageSink for XdpClockPageSink {
    fn publish(&mut self, pages: &ClockPages) -> io::Result<()> {
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

/// Returns the clock values of a page in the form of the program.
#[must_use]
pub fn clock_update(page: &ClockPage) -> ClockPageUpdate {
    let variables = &page.variables;
    ClockPageUpdate {
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

/// Maximum number of receive queues of an interface that get a socket; each takes 5 MB.
const QUEUES_MAX: u32 = 128;

/// `AF_XDP` socket of one receive queue.
#[derive(Debug)]
pub(crate) struct AfXdpQueue {
    /// Device that receives the redirected requests.
    pub(crate) device: XskDevice,
    /// Counter of the packets that the kernel dropped at the socket.
    pub(crate) drops: XskDropCounter,
}

/// Returns the number of receive queues of the interface, at most [`QUEUES_MAX`]; 1 if the driver
/// does not report it.
pub(crate) fn receive_queue_count(interface: &str) -> u32 {
    let channels = ethtool::channels(interface);
    channels.map_or(1, |channels| (channels.rx + channels.combined).clamp(1, QUEUES_MAX))
}

/// Opens an `AF_XDP` socket for each receive queue of an interface and makes the XDP program
/// redirect requests to them; they take the queue numbers of the program's map from `first` on.
pub(crate) fn open_queues(
    responder: &Responder,
    attachment: &Attachment,
    first: u32,
) -> Result<Vec<AfXdpQueue>, XdpError> {
    let interface: &Interface = attachment.interface();
    let count = receive_queue_count(&interface.name);
    let sockets: Vec<XskSocket> =
        (0..count).map(|queue| XskSocket::open(interface, queue)).collect::<Result<_, _>>()?;
    responder.redirect_to(interface, &sockets, first)?;
    let to_queue = |socket: XskSocket| {
        let drops = socket.drop_counter().map_err(XdpError::Map)?;
        Ok(AfXdpQueue { device: XskDevice::new(socket, interface.index), drops })
    };
    sockets.into_iter().map(to_queue).collect()
}
