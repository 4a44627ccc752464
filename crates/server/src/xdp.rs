//! The server's body in the kernel: where it is attached, what it is told of the clock and of this
//! machine's addresses, and what it counted. What it answers is decided by [`crate::decide`] and
//! modelled by [`crate::decide_frame`]; nothing here decides it again.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use horolog_sys::netlink::{InterfaceAddress, Link, Netlink, NetlinkError};
use horolog_xdp::{
    AttachMode, Attachment, ClockEdition, ClockWriter, Interface, InterleavedRequests,
    PassedReason, Refusal, ReplyPath, Responder, XdpError, says_of_redirects,
};
use serde::Serialize;

use crate::hand_over::{self, HandedOver};
use crate::page::{Page, PageSink, Pages};
use crate::{
    Engine, HashKey, InterleavedBody, ListenSet, ServerConfig, XdpReply, responder_settings,
};

/// How often this machine's addresses are looked up again.
const ADDRESSES_EVERY: Duration = Duration::from_secs(1);

/// Why the kernel does not answer.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The kernel refused a program, or a place for it.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// An interface, or this machine's addresses, could not be looked up.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// An interface was named that cannot carry requests to the addresses listened on.
    #[error(
        "interface '{0}' carries no Ethernet, so XDP cannot answer there; leave it out of \
         --interface or use --engine socket"
    )]
    NotEthernet(String),
    /// No interface fits the addresses listened on.
    #[error(
        "no interface that is up and carries Ethernet has an address listened on, so XDP has no \
         place; name one with --interface"
    )]
    NoInterface,
    /// There are no random numbers to draw a key from.
    #[error("the kernel gave no random numbers: {0}")]
    Random(#[source] io::Error),
}

/// Where XDP answers, as `horolog status` tells it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct XdpPlace {
    /// The interface.
    pub interface: String,
    /// `native` or `generic`.
    pub mode: &'static str,
}

/// What the XDP body counted, as `horolog status` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct XdpTotals {
    /// Requests over IPv4 that were answered, kisses among them.
    pub answered_ipv4: u64,
    /// Requests over IPv6 that were answered, kisses among them.
    pub answered_ipv6: u64,
    /// Of these, how many in interleaved mode.
    pub answered_interleaved: u64,
    /// Requests of clients that limits and lists let through; 0 where there are none.
    pub admitted: u64,
    /// Requests dropped by limits and lists, by reason.
    pub dropped: Dropped,
    /// Kisses sent, by code.
    pub kisses: Kisses,
    /// PTP's requests for the delay that were answered.
    pub answered_ptp: u64,
    /// Requests of PTP's NetSync Monitor that were answered.
    pub answered_ptp_monitor: u64,
    /// Requests with more than a header that were handed over to threads of this process past the
    /// network stack; what became of them stands among the counters of the sockets.
    pub handed_over: u64,
    /// Frames that went on to the network stack, by reason.
    pub passed: Passed,
}

impl XdpTotals {
    /// Requests that were answered.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered_ipv4 + self.answered_ipv6
    }
}

/// Frames that went on to the network stack, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Passed {
    /// Not for an address and port served here.
    pub not_ntp: u64,
    /// Lengths or the IPv4 checksum do not fit, or there are trailing bytes.
    pub malformed: u64,
    /// Pieces of packets.
    pub fragment: u64,
    /// A source that must not be answered, or a group address.
    pub address: u64,
    /// Not exactly one NTP header.
    pub length: u64,
    /// A version or mode that is not a plain client request.
    pub request: u64,
    /// The clock page had expired.
    pub no_clock: u64,
    /// Requests that may be of interleaved mode, on interfaces where the sockets answer them.
    pub interleaved: u64,
}

/// Requests dropped by limits and lists, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Dropped {
    /// The client asked too often.
    pub limited: u64,
    /// The lists deny it.
    pub denied: u64,
    /// Too many clients that were not known before.
    pub newcomers: u64,
}

/// Kisses sent, by code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Kisses {
    /// To clients that asked too often.
    pub rate: u64,
    /// To clients that the lists deny.
    pub deny: u64,
}

/// An XDP body that has been started, with what it takes to serve it.
pub(crate) struct Started {
    /// The body.
    pub(crate) body: XdpBody,
    /// Where it gets its pages from.
    pub(crate) sink: Box<dyn PageSink>,
    /// The devices that it hands requests over by, to be answered from there.
    pub(crate) handed_over: Vec<HandedOver>,
}

/// The XDP body in place; dropping it takes the program off every interface.
pub(crate) struct XdpBody {
    attachments: Vec<Attachment>,
    responder: Arc<Responder>,
    /// Where it could not be attached, or hand nothing over, and why.
    refusals: Vec<XdpError>,
}

impl std::fmt::Debug for XdpBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpBody").field("places", &self.places()).finish_non_exhaustive()
    }
}

impl XdpBody {
    /// Loads the program and attaches it to the interfaces that the configuration names,
    /// or to all that have an address listened on. It answers once the sink that comes
    /// with it is given pages. `hardware` tells whether the sockets have hardware transmit
    /// timestamps on the interface of this name.
    pub(crate) fn start(
        config: &ServerConfig,
        shared: &SharedListen,
        hardware: impl Fn(&str) -> bool,
    ) -> Result<Started, BodyError> {
        let mut netlink = Netlink::open()?;
        let addresses = netlink.addresses()?;
        let all = shared.load().all();
        let links = links(&mut netlink, &all, config, &addresses)?;
        let mode = if config.xdp_generic { AttachMode::Generic } else { AttachMode::Native };
        let key = HashKey::random().map_err(BodyError::Random)?;
        let mut settings = responder_settings(key, &config.limits, &config.interleaved);
        let hands_over = config.hands_over();
        if hands_over {
            settings.handed_over_queues =
                links.iter().map(|link| hand_over::queues(&link.name)).sum();
        }
        // Behind the drivers, copies of a frame would share its bytes.
        settings.ptp_monitor =
            config.ptp.is_on() && config.ptp.monitor && mode == AttachMode::Native;
        let (responder, clock) = Responder::load(&settings)?;
        responder.limit(&config.limits.rules(), &config.limits.listed())?;
        if config.ptp.is_on() {
            responder.include_ptp()?;
        }
        let (mut attachments, mut refusals) = (Vec::new(), Vec::new());
        for link in links {
            let path = reply_path(config.xdp_reply, &link);
            let interleaved = interleaved_requests(config, hardware(&link.name));
            if is_deaf(config, mode, path, link.index) {
                refusals.push(XdpError::DeafPeer { interface: link.name });
                continue;
            }
            let interface = Interface { index: link.index, name: link.name };
            match responder.attach(&interface, mode, path, interleaved) {
                Ok(attachment) => attachments.push(attachment),
                Err(error) => refusals.push(error),
            }
            if settings.ptp_monitor {
                responder.answer_monitor_by(interface.index)?;
            }
        }
        // Where nothing was named, an interface that cannot is no reason to do without the others.
        let all_wanted = config.engine == Engine::Xdp || !config.interfaces.is_empty();
        if (all_wanted || attachments.is_empty()) && !refusals.is_empty() {
            return Err(refusals.swap_remove(0).into());
        }
        let mut handed_over = Vec::new();
        if hands_over {
            for attachment in &attachments {
                // The program may pass more up than it has to, never less.
                match hand_over::open(&responder, attachment, handed_over.len() as u32) {
                    Ok(devices) => handed_over.extend(devices),
                    Err(error) => refusals.push(error),
                }
            }
        }
        let responder = Arc::new(responder);
        let listeners = Listeners { listen: Arc::clone(shared), known: BTreeSet::new() };
        let mut sink =
            Sink { clock, responder: Arc::clone(&responder), netlink, listeners, looked: None };
        sink.listen(&addresses)?;
        Ok(Started {
            body: Self { attachments, responder, refusals },
            sink: Box::new(sink),
            handed_over,
        })
    }

    /// Takes the program off every interface.
    pub(crate) fn detach(&mut self) {
        self.attachments.clear();
    }

    /// Why it does not answer on interfaces where it might, in one line; `None` where it does.
    pub(crate) fn refusals(&self) -> Option<String> {
        let reasons: Vec<String> = self.refusals.iter().map(ToString::to_string).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Where it answers.
    pub(crate) fn places(&self) -> Vec<XdpPlace> {
        let place = |attachment: &Attachment| XdpPlace {
            interface: attachment.interface().name.clone(),
            mode: mode_name(attachment.mode()),
        };
        self.attachments.iter().map(place).collect()
    }

    /// Whether it answers on the interface of this name.
    pub(crate) fn is_at(&self, interface: &str) -> bool {
        self.attachments.iter().any(|attachment| attachment.interface().name == interface)
    }

    /// The program, to be given other limits, and what PTP answers.
    pub(crate) fn responder(&self) -> Arc<Responder> {
        Arc::clone(&self.responder)
    }

    /// Requests answered on each core, by its number.
    pub(crate) fn answered_by_core(&self) -> Vec<u64> {
        self.responder.answered_by_core()
    }

    /// What was counted so far.
    pub(crate) fn totals(&self) -> XdpTotals {
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
        for (refusal, count) in Refusal::ALL.into_iter().zip(counts.refused) {
            let field = match refusal {
                Refusal::Limited => &mut dropped.limited,
                Refusal::Denied => &mut dropped.denied,
                Refusal::Newcomers => &mut dropped.newcomers,
                Refusal::KissRate => &mut kisses.rate,
                Refusal::KissDeny => &mut kisses.deny,
            };
            *field = count;
        }
        XdpTotals {
            answered_ipv4: counts.answered_ipv4,
            answered_ipv6: counts.answered_ipv6,
            answered_interleaved: counts.answered_interleaved,
            admitted: counts.admitted,
            dropped,
            kisses,
            answered_ptp: counts.answered_ptp,
            answered_ptp_monitor: counts.answered_ptp_monitor,
            handed_over: counts.handed_over,
            passed,
        }
    }
}

/// Who answers requests that may be of interleaved mode on an interface.
const fn interleaved_requests(config: &ServerConfig, hardware: bool) -> InterleavedRequests {
    match config.interleaved.body {
        _ if config.interleaved.clients == 0 => InterleavedRequests::Answer,
        InterleavedBody::Socket => InterleavedRequests::PassUp,
        InterleavedBody::Auto if hardware => InterleavedRequests::PassUp,
        InterleavedBody::Auto | InterleavedBody::Xdp => InterleavedRequests::Answer,
    }
}

const fn mode_name(mode: AttachMode) -> &'static str {
    match mode {
        AttachMode::Native => "native",
        AttachMode::Generic => "generic",
    }
}

/// The interfaces that the configuration names, or all that have an address listened on; and those
/// that PTP is served on.
fn links(
    netlink: &mut Netlink,
    listen: &[SocketAddr],
    config: &ServerConfig,
    addresses: &[InterfaceAddress],
) -> Result<Vec<Link>, BodyError> {
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
        return Err(BodyError::NotEthernet(link.name.clone()));
    }
    if chosen.is_empty() {
        return Err(BodyError::NoInterface);
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

/// Whether replies on the interface with this index would get lost. Whoever asks for XDP alone may
/// see to the other end later, and gets it.
fn is_deaf(config: &ServerConfig, mode: AttachMode, path: ReplyPath, interface: u32) -> bool {
    let replies = config.engine == Engine::Auto && path == ReplyPath::Redirect;
    replies && mode == AttachMode::Native && says_of_redirects(interface) == Some(false)
}

/// The loopback interface has a MAC address of zeroes.
fn is_ethernet(link: &Link) -> bool {
    link.mac.is_some_and(|mac| mac != [0; 6])
}

/// The addresses listened on, by what they serve.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Listens {
    /// UTC, with its steps.
    pub(crate) stepped: Vec<SocketAddr>,
    /// Smeared time.
    pub(crate) smeared: Vec<SocketAddr>,
}

impl Listens {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<SocketAddr> {
        [&self.stepped[..], &self.smeared].concat()
    }
}

/// The addresses listened on, which a reload may replace.
pub(crate) type SharedListen = Arc<ArcSwap<Listens>>;

/// What is listened on, and the concrete addresses that the program knows of.
struct Listeners {
    listen: SharedListen,
    known: BTreeSet<SocketAddr>,
}

/// Hands pages to the program, and tells it when this machine's addresses change.
struct Sink {
    clock: ClockWriter,
    responder: Arc<Responder>,
    netlink: Netlink,
    listeners: Listeners,
    /// When the addresses were looked up, and for which list.
    looked: Option<(Instant, Arc<Listens>)>,
}

impl Sink {
    fn listen(&mut self, addresses: &[InterfaceAddress]) -> Result<(), XdpError> {
        let own: Vec<IpAddr> = addresses.iter().map(|own| own.prefix.address()).collect();
        let listen = self.listeners.listen.load_full();
        let set = ListenSet::resolve(&listen.stepped, &own).with_smeared(&listen.smeared, &own);
        let wanted: BTreeSet<SocketAddr> = set.addresses().iter().copied().collect();
        let known = &mut self.listeners.known;
        known.difference(&wanted).try_for_each(|&gone| self.responder.unlisten(gone))?;
        wanted
            .difference(known)
            .try_for_each(|&new| self.responder.listen_on(new, set.timeline(new)))?;
        *known = wanted;
        self.looked = Some((Instant::now(), listen));
        Ok(())
    }
}

impl PageSink for Sink {
    fn publish(&mut self, pages: &Pages) -> io::Result<()> {
        self.clock.publish(&edition(&pages.stepped), &edition(&pages.smeared));
        let due = self.looked.as_ref().is_none_or(|(looked, listen)| {
            looked.elapsed() >= ADDRESSES_EVERY || *listen != *self.listeners.listen.load()
        });
        if due {
            let addresses = self.netlink.addresses().map_err(io::Error::other)?;
            self.listen(&addresses).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// What the program is told by a page.
#[must_use]
pub fn edition(page: &Page) -> ClockEdition {
    let variables = &page.variables;
    ClockEdition {
        timebase: page.timebase,
        leap: variables.leap as u8,
        leap_after: page.leap_after as u8,
        stratum: variables.stratum,
        precision: variables.precision,
        root_delay: variables.root_delay.to_bits(),
        root_dispersion: variables.root_dispersion.to_bits(),
        reference_id: variables.reference_id,
        reference: variables.reference.to_bits(),
        tai_minus_utc_s: page.tai_minus_utc_s,
    }
}
