//! XDP engine of the server: loading, the clock page that it reads, the addresses that it answers
//! at, its rate limits, and its counters.

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use horolog_sys::netlink::{Link, MacAddress, VlanId};
use horolog_time::leap::Timeline;
use horolog_time::{Monotonic, Timebase, Timestamp};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes;

use crate::abi::{
    ClockFields, ClockPage, ClockSlot, LimitRules, ListenKey, PASSED_REASONS, QueueRow, REFUSALS,
    ResponderState, StationKey, TIMELINES,
};
use crate::attach::{AttachMode, Attachment, Interface};
use crate::limits::{LimitMaps, ListedPrefix, ResponderSettings};
use crate::map::SharedArray;
use crate::object::{self, LoadedObject};
use crate::test_run::{self, TestRunOutcome};
use crate::{XdpError, XskSocket, object::possible_processors};

const NAME: &str = "responder";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/responder.o"));

/// Clock values of the responder's replies until the next page update.
#[derive(Clone, Copy, Debug)]
pub struct ClockUpdate {
    /// Conversion from monotonic to NTP time, with the expiry.
    pub timebase: Timebase,
    /// Leap indicator, 0 to 3, before the time base's step.
    pub leap: u8,
    /// Leap indicator from the step on.
    pub leap_after: u8,
    /// Stratum as encoded in the packet.
    pub stratum: u8,
    /// Precision, log2 of seconds.
    pub precision: i8,
    /// Root delay in NTP short format.
    pub root_delay: u32,
    /// Root dispersion in NTP short format.
    pub root_dispersion: u32,
    /// Reference identifier.
    pub reference_id: [u8; 4],
    /// Reference timestamp, 64 bits of NTP time.
    pub reference: u64,
    /// TAI minus UTC before the time base's step, in seconds; if it is unknown, PTP is served UTC.
    pub tai_minus_utc_s: Option<i16>,
}

/// MAC address at which this host accepts frames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Station {
    /// Index of the ingress interface.
    pub interface: u32,
    /// VLAN of the frames' tag.
    pub vlan: Option<VlanId>,
    /// Destination of the frames.
    pub mac: MacAddress,
}

impl Station {
    /// Returns the station of an interface; that of a VLAN is at the underlying interface. `None`
    /// if frames cannot come in for it.
    #[must_use]
    pub fn of(link: &Link) -> Option<Self> {
        let mac = link.mac.filter(|_| link.up)?;
        match (link.vlan, link.peer_index, link.peer_nsid) {
            (None, ..) => Some(Self { interface: link.index, vlan: None, mac }),
            (vlan, Some(interface), None) => Some(Self { interface, vlan, mac }),
            _ => None,
        }
    }
}

/// Transmission of replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyPath {
    /// `XDP_TX`, the fastest. On a virtual link (veth) the other end must run an XDP program, or it
    /// is not woken.
    Transmit,
    /// A redirect to the same interface.
    Redirect,
}

/// Handling of requests that may be in interleaved mode on an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterleavedRequests {
    /// Answered by this program, with the one reading of the clock as transmit timestamp; in basic
    /// mode if [`ResponderSettings::interleaved_slots`] is 0.
    Answer,
    /// Passed, because the sockets have better transmit timestamps for this interface.
    PassUp,
}

/// Reason for which the responder passed a frame to the network stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassedReason {
    /// Not UDP over IP to an address and port served here.
    NotNtp,
    /// Lengths or the IPv4 checksum do not fit, or there are trailing bytes.
    Malformed,
    /// A fragment of a packet.
    Fragment,
    /// A source that must not be answered, or a group address.
    Address,
    /// Not exactly one NTP header.
    Length,
    /// A version or mode that is not answered here.
    Request,
    /// The clock page has expired.
    NoClock,
    /// Possibly in interleaved mode, which the sockets answer on this interface.
    Interleaved,
}

impl PassedReason {
    /// All reasons, in the order of `enum passed_reason`.
    pub const ALL: [Self; PASSED_REASONS] = [
        Self::NotNtp,
        Self::Malformed,
        Self::Fragment,
        Self::Address,
        Self::Length,
        Self::Request,
        Self::NoClock,
        Self::Interleaved,
    ];
}

/// Reason for which a client was refused, in the order of `enum admission`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionRefusal {
    /// The client exceeded its rate; the request was dropped.
    Limited,
    /// The lists deny it; the request was dropped.
    Denied,
    /// Too many new clients; the request was dropped.
    NewClients,
    /// The client exceeded its rate and was sent a RATE kiss.
    KissRate,
    /// The lists deny it and it was sent a DENY kiss.
    KissDeny,
}

impl AdmissionRefusal {
    /// All reasons, in the order of `enum admission`.
    pub const ALL: [Self; REFUSALS] =
        [Self::Limited, Self::Denied, Self::NewClients, Self::KissRate, Self::KissDeny];
}

/// Counts of the responder since it was loaded, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounts {
    /// Requests over IPv4 that were answered, including kisses.
    pub answered_ipv4: u64,
    /// Requests over IPv6 that were answered, including kisses.
    pub answered_ipv6: u64,
    /// Requests answered in interleaved mode, included above.
    pub answered_interleaved: u64,
    /// Requests answered in symmetric passive mode, included above.
    pub answered_symmetric: u64,
    /// Requests that passed limits and lists; 0 without any.
    pub admitted: u64,
    /// Requests refused by them, in the order of [`AdmissionRefusal::ALL`].
    pub refused: [u64; REFUSALS],
    /// Requests longer than a header that were redirected to `AF_XDP` sockets.
    pub to_af_xdp: u64,
    /// PTP delay requests that were answered.
    pub answered_ptp: u64,
    /// PTP `NetSync` Monitor requests that were answered.
    pub answered_ptp_monitor: u64,
    /// Frames passed to the network stack, in the order of [`PassedReason::ALL`].
    pub passed: [u64; PASSED_REASONS],
}

/// A loaded responder; it answers where it is attached.
pub struct Responder {
    page: Arc<SharedArray<ClockPage>>,
    states: SharedArray<ResponderState>,
    limits: Mutex<LimitMaps>,
    pub(crate) loaded: LoadedObject,
}

impl Responder {
    /// Loads the program, and returns the writer of its clock page too. It answers nothing before a
    /// clock page is published, addresses are set and it is attached.
    pub fn load(settings: &ResponderSettings) -> Result<(Self, ClockWriter), XdpError> {
        let processors = possible_processors();
        let sizes = settings.sizes();
        let loaded = LoadedObject::load(NAME, OBJECT, |open| {
            object::size_map(open, NAME, "states", processors)?;
            sizes.iter().try_for_each(|&(map, size)| object::size_map(open, NAME, map, size))?;
            object::set_constants(open, NAME, settings.config().as_bytes())
        })?;
        let page = Arc::new(SharedArray::map(loaded.map("clock_pages")?.as_fd(), 1)?);
        let states = SharedArray::map(loaded.map("states")?.as_fd(), processors)?;
        let rules = SharedArray::map(loaded.map("limit_rules")?.as_fd(), 1)?;
        let sets = SharedArray::map(loaded.map("limit_sets")?.as_fd(), sizes[0].1)?;
        let limits = Mutex::new(LimitMaps::new(rules, sets));
        Ok((Self { page: Arc::clone(&page), states, limits, loaded }, ClockWriter { page }))
    }

    /// Attaches it to the interface, in this mode, with this path of replies.
    pub fn attach(
        &self,
        interface: &Interface,
        mode: AttachMode,
        path: ReplyPath,
        interleaved: InterleavedRequests,
    ) -> Result<Attachment, XdpError> {
        let program = match (path, interleaved) {
            (ReplyPath::Transmit, InterleavedRequests::Answer) => "respond",
            (ReplyPath::Redirect, InterleavedRequests::Answer) => "respond_by_redirect",
            (ReplyPath::Transmit, InterleavedRequests::PassUp) => "respond_basic",
            (ReplyPath::Redirect, InterleavedRequests::PassUp) => "respond_basic_by_redirect",
        };
        Attachment::new(self.loaded.program(program)?, interface, mode)
    }

    /// Replaces rules and lists; `rules.epoch` is ignored. They matter only if the settings have
    /// limits. Until this returns, the old ones may apply to some clients and the new ones to
    /// others.
    pub fn limit(&self, rules: &LimitRules, lists: &[ListedPrefix]) -> Result<(), XdpError> {
        // A thread that panicked with the lock held has left the maps in a state that this repairs.
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.set(&self.loaded, rules, lists)
    }

    /// Returns the number of clients in the rate-limit table, including idle ones.
    #[must_use]
    pub fn limited_clients(&self) -> u64 {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).clients()
    }

    /// Returns the time at which a client was last checked against limits and lists, if any was.
    #[must_use]
    pub fn last_judged_at(&self) -> Option<Timestamp<Monotonic>> {
        let instants = (0..self.states.entries()).map(|own| self.states.read(own).last_checked_ns);
        let last = instants.max().filter(|&instant| instant != 0)?;
        Some(Timestamp::from_ns(last.cast_signed()))
    }

    /// Redirects requests longer than a header that come in by the interface to `sockets`, one for
    /// each of its receive queues in order, instead of passing them; those of queues beyond these
    /// are passed. `first` is the number of queues of other interfaces for which this was called
    /// before; with these they must be within [`ResponderSettings::af_xdp_queues`]. Limits and
    /// lists apply to them as well.
    pub fn redirect_to(
        &self,
        interface: &Interface,
        sockets: &[XskSocket],
        first: u32,
    ) -> Result<(), XdpError> {
        let failed = |error: libbpf_rs::Error| XdpError::Map(object::to_io(&error));
        let queues = self.loaded.map("queues")?;
        for (number, socket) in (first..).zip(sockets) {
            let descriptor = socket.as_fd().as_raw_fd().cast_unsigned();
            let value = descriptor.to_ne_bytes();
            queues.update(&number.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed)?;
        }
        let queue_rows = self.loaded.map("queue_rows")?;
        let key = interface.index.to_ne_bytes();
        let row = QueueRow { first, count: sockets.len() as u32 };
        queue_rows.update(&key, row.as_bytes(), MapFlags::ANY).map_err(failed)
    }

    /// Starts to answer requests to this address and port with UTC. Unspecified addresses are not
    /// resolved: the caller names every address.
    pub fn listen(&self, at: SocketAddr) -> Result<(), XdpError> {
        self.listen_on(at, Timeline::Stepped)
    }

    /// Starts to answer requests to this address and port with the time of this timeline.
    pub fn listen_on(&self, at: SocketAddr, timeline: Timeline) -> Result<(), XdpError> {
        let key = listen_key(at);
        self.loaded
            .map("listen_set")?
            .update(key.as_bytes(), &[timeline as u8], MapFlags::ANY)
            .map_err(|error| XdpError::Map(object::to_io(&error)))?;
        self.forget_what_was_found();
        Ok(())
    }

    /// Stops answering requests to this address and port; an unknown one is no error.
    pub fn unlisten(&self, at: SocketAddr) -> Result<(), XdpError> {
        let removed = self.include("listen_set", listen_key(at).as_bytes(), false);
        self.forget_what_was_found();
        removed
    }

    /// Starts or stops answering requests to a MAC address of this host.
    pub fn serve_station(&self, station: Station, serve: bool) -> Result<(), XdpError> {
        let Station { interface, vlan, mac } = station;
        let VlanId { protocol, identifier } = vlan.unwrap_or(VlanId { protocol: 0, identifier: 0 });
        let key = StationKey {
            interface,
            protocol: protocol.to_be_bytes(),
            identifier: identifier.to_be_bytes(),
            mac,
            padding: [0; 2],
        };
        let changed = self.include("stations", key.as_bytes(), serve);
        self.forget_what_was_found();
        changed
    }

    /// Adds or removes a broadcast address of this host's networks. A request from one is not
    /// answered.
    pub fn refuse_broadcast(&self, address: Ipv4Addr, refuse: bool) -> Result<(), XdpError> {
        self.include("broadcasts", &address.octets(), refuse)
    }

    /// Adds a key to a set, or removes it; a missing one is no error.
    fn include(&self, set: &'static str, key: &[u8], include: bool) -> Result<(), XdpError> {
        let set = self.loaded.map(set)?;
        let changed = if include { set.update(key, &[1], MapFlags::ANY) } else { set.delete(key) };
        match changed {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(XdpError::Map(object::to_io(&error)))
            }
            _ => Ok(()),
        }
    }

    /// Makes every CPU repeat the lookup of the next destination.
    fn forget_what_was_found(&self) {
        self.page.atomic(0, offset_of!(ClockPage, listen_epoch)).fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the counts since loading.
    #[must_use]
    pub fn counts(&self) -> ResponderCounts {
        let mut total = ResponderCounts::default();
        for processor in 0..self.states.entries() {
            let own = self.states.read(processor);
            total.answered_ipv4 += own.answered_ipv4;
            total.answered_ipv6 += own.answered_ipv6;
            total.answered_interleaved += own.answered_interleaved;
            total.answered_symmetric += own.answered_symmetric;
            total.admitted += own.admitted;
            total.to_af_xdp += own.to_af_xdp;
            total.answered_ptp += own.answered_ptp;
            total.answered_ptp_monitor += own.answered_ptp_monitor;
            for (sum, refused) in total.refused.iter_mut().zip(own.refused) {
                *sum += refused;
            }
            for (sum, passed) in total.passed.iter_mut().zip(own.passed) {
                *sum += passed;
            }
        }
        total
    }

    /// Returns the requests answered on each CPU since loading, by its number.
    #[must_use]
    pub fn answered_by_core(&self) -> Vec<u64> {
        let own = (0..self.states.entries()).map(|processor| self.states.read(processor));
        own.map(|own| own.answered_ipv4 + own.answered_ipv6).collect()
    }

    /// Runs the program once over a frame, as if it had arrived, without sending anything.
    pub fn test_run(&self, frame: &[u8]) -> Result<TestRunOutcome, XdpError> {
        test_run::once(self.loaded.program("respond")?, frame)
    }

    /// Runs the program for interfaces whose interleaved requests are passed once over a frame.
    pub fn test_run_basic(&self, frame: &[u8]) -> Result<TestRunOutcome, XdpError> {
        test_run::once(self.loaded.program("respond_basic")?, frame)
    }
}

/// Writer of a responder's clock page; there is only one.
pub struct ClockWriter {
    page: Arc<SharedArray<ClockPage>>,
}

impl ClockWriter {
    /// Publishes a page update for each timeline: the values are written into the inactive slots,
    /// which then become active. There is one writer, so one update is written at a time.
    pub fn publish(&mut self, stepped: &ClockUpdate, smeared: &ClockUpdate) {
        let active = self.page.atomic(0, offset_of!(ClockPage, active));
        let next = 1 - (active.load(Ordering::Relaxed) & 1);
        for (timeline, edition) in (0..).zip([stepped, smeared]) {
            self.write(next as usize * TIMELINES + timeline, edition);
        }
        active.store(next, Ordering::Release);
    }

    fn write(&self, slot: usize, edition: &ClockUpdate) {
        let slot = offset_of!(ClockPage, slots) + slot * size_of::<ClockSlot>();
        let sequence = self.page.atomic(0, slot + offset_of!(ClockSlot, sequence));
        let odd = sequence.load(Ordering::Relaxed).wrapping_add(1) | 1;
        sequence.store(odd, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.page.write_part(0, slot + offset_of!(ClockSlot, fields), &fields(edition));
        sequence.store(odd.wrapping_add(1), Ordering::Release);
    }
}

pub(crate) fn listen_key(at: SocketAddr) -> ListenKey {
    let address = match at.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    ListenKey { address, port: at.port().to_be_bytes(), reserved: [0; 2] }
}

fn fields(edition: &ClockUpdate) -> ClockFields {
    ClockFields {
        anchor_ns: edition.timebase.anchor.as_ns() as u64,
        ntp_at_anchor: edition.timebase.ntp_at_anchor.to_bits(),
        expires_ns: edition.timebase.expires.as_ns() as u64,
        rate: edition.timebase.rate,
        leap: edition.leap,
        stratum: edition.stratum,
        precision: edition.precision,
        leap_after: edition.leap_after,
        root_delay: edition.root_delay.to_be_bytes(),
        root_dispersion: edition.root_dispersion.to_be_bytes(),
        reference_id: edition.reference_id,
        tai_minus_utc_s: edition.tai_minus_utc_s.unwrap_or(0),
        tai_is_known: u16::from(edition.tai_minus_utc_s.is_some()),
        reference: edition.reference.to_be_bytes(),
        step_at_ns: edition.timebase.step_at.as_ns() as u64,
        step: edition.timebase.step.cast_unsigned(),
        reserved2: [0; 6],
    }
}
