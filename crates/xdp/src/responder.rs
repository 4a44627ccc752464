//! The server's XDP body: loading, the clock page that it reads, the addresses that it answers at,
//! the limits that it keeps, and its counters.

use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use horolog_time::leap::Timeline;
use horolog_time::{Monotonic, Timebase, Timestamp};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes;

use crate::abi::{
    ClockFields, ClockPage, ClockSlot, LimitRules, ListenKey, PASSED_REASONS, QueueRow, REFUSALS,
    ResponderState, TIMELINES,
};
use crate::attach::{AttachMode, Attachment, Interface};
use crate::limits::{Limits, ListedPrefix, ResponderSettings};
use crate::map::SharedArray;
use crate::object::{self, Loaded};
use crate::test_run::{self, Outcome};
use crate::{XdpError, XskSocket, object::possible_processors};

const NAME: &str = "responder";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/responder.o"));

/// What the responder says of the server's clock until the next edition.
#[derive(Clone, Copy, Debug)]
pub struct ClockEdition {
    /// From monotonic to NTP time, with the expiry.
    pub timebase: Timebase,
    /// Leap indicator, 0 to 3, before the time base's step.
    pub leap: u8,
    /// Leap indicator from the step on.
    pub leap_after: u8,
    /// Stratum as it stands in the packet.
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
    /// TAI minus UTC before the time base's step, in seconds; PTP is served UTC where it is not
    /// known.
    pub tai_minus_utc_s: Option<i16>,
}

/// How replies leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyPath {
    /// `XDP_TX`, the fastest. On a virtual link (veth) the other end must run an XDP program, or it
    /// does not notice what was sent.
    Transmit,
    /// A redirect to the same interface.
    Redirect,
}

/// What becomes of requests that may be of interleaved mode on an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterleavedRequests {
    /// They are answered here, with the one reading of the clock as transmit timestamp; in basic
    /// mode where [`ResponderSettings::interleaved_slots`] is 0.
    Answer,
    /// They go up, because the sockets have better transmit timestamps for this interface.
    PassUp,
}

/// Why the responder let a frame go on to the network stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassedReason {
    /// Not UDP over IP to an address and port served here.
    NotNtp,
    /// Lengths or the IPv4 checksum do not fit, or there are trailing bytes.
    Malformed,
    /// A piece of a packet.
    Fragment,
    /// A source that must not be answered, or a group address.
    Address,
    /// Not exactly one NTP header.
    Length,
    /// A version or mode that is not a plain client request.
    Request,
    /// The clock page has expired.
    NoClock,
    /// It may be of interleaved mode, which the sockets answer on this interface.
    Interleaved,
}

impl PassedReason {
    /// All of them, in the order of `enum passed_reason`.
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

/// Why a client was not served, in the order of `enum admission`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It asked too often; the request was dropped.
    Limited,
    /// The lists deny it; the request was dropped.
    Denied,
    /// Too many clients that were not known before; the request was dropped.
    Newcomers,
    /// It asked too often and was told so.
    KissRate,
    /// The lists deny it and it was told so.
    KissDeny,
}

impl Refusal {
    /// All of them, in the order of `enum admission`.
    pub const ALL: [Self; REFUSALS] =
        [Self::Limited, Self::Denied, Self::Newcomers, Self::KissRate, Self::KissDeny];
}

/// What the responder counted since it was loaded, over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounts {
    /// Requests over IPv4 that were answered, kisses among them.
    pub answered_ipv4: u64,
    /// Requests over IPv6 that were answered, kisses among them.
    pub answered_ipv6: u64,
    /// Of these, how many in interleaved mode.
    pub answered_interleaved: u64,
    /// Requests that limits and lists let through; 0 where there are none.
    pub admitted: u64,
    /// Requests that they did not let through, in the order of [`Refusal::ALL`].
    pub refused: [u64; REFUSALS],
    /// Requests with more than a header that were given to `AF_XDP` sockets.
    pub handed_over: u64,
    /// PTP's requests for the delay that were answered.
    pub answered_ptp: u64,
    /// Requests of PTP's `NetSync` Monitor that were answered.
    pub answered_ptp_monitor: u64,
    /// Frames that went on to the network stack, in the order of [`PassedReason::ALL`].
    pub passed: [u64; PASSED_REASONS],
}

/// The responder, loaded; it answers where it is attached.
pub struct Responder {
    page: Arc<SharedArray<ClockPage>>,
    states: SharedArray<ResponderState>,
    limits: Mutex<Limits>,
    pub(crate) loaded: Loaded,
}

impl Responder {
    /// Loads the program, and returns the writing end of its clock too. It answers nothing before a
    /// clock edition is published, addresses are given and it is attached.
    pub fn load(settings: &ResponderSettings) -> Result<(Self, ClockWriter), XdpError> {
        let processors = possible_processors();
        let sizes = settings.sizes();
        let loaded = Loaded::load(NAME, OBJECT, |open| {
            object::size_map(open, NAME, "states", processors)?;
            sizes.iter().try_for_each(|&(map, size)| object::size_map(open, NAME, map, size))?;
            object::set_constants(open, NAME, settings.config().as_bytes())
        })?;
        let page = Arc::new(SharedArray::map(loaded.map("clock_pages")?.as_fd(), 1)?);
        let states = SharedArray::map(loaded.map("states")?.as_fd(), processors)?;
        let rules = SharedArray::map(loaded.map("limit_rules")?.as_fd(), 1)?;
        let sets = SharedArray::map(loaded.map("limit_sets")?.as_fd(), sizes[0].1)?;
        let limits = Mutex::new(Limits::new(rules, sets));
        Ok((Self { page: Arc::clone(&page), states, limits, loaded }, ClockWriter { page }))
    }

    /// Attaches it to the interface, in this mode, to reply by this path.
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

    /// Puts rules and lists in force, in the place of those before; `rules.epoch` does not count.
    /// They matter only where the settings have limits. Until this returns, some clients may be
    /// held to the old ones and others to the new ones.
    pub fn limit(&self, rules: &LimitRules, lists: &[ListedPrefix]) -> Result<(), XdpError> {
        // A thread that panicked in there has left the maps in a state that this mends.
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.set(&self.loaded, rules, lists)
    }

    /// Clients that limits know, those that have long been silent among them.
    #[must_use]
    pub fn limited_clients(&self) -> u64 {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).clients()
    }

    /// When a client was last judged by limits and lists, if any was.
    #[must_use]
    pub fn judged_at(&self) -> Option<Timestamp<Monotonic>> {
        let instants = (0..self.states.entries()).map(|own| self.states.read(own).judged_ns);
        let last = instants.max().filter(|&instant| instant != 0)?;
        Some(Timestamp::from_ns(last.cast_signed()))
    }

    /// Gives requests with more than a header that come in by the interface to `sockets`, one for
    /// each of its receive queues in order, instead of letting them go up; those of queues beyond
    /// these go up. `first` is the number of
    /// queues of other interfaces for which this was called before; with these they must be within
    /// [`ResponderSettings::handed_over_queues`]. Limits and lists hold for them all the same.
    pub fn hand_over(
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
        let places = self.loaded.map("queue_places")?;
        let key = interface.index.to_ne_bytes();
        let row = QueueRow { first, count: sockets.len() as u32 };
        places.update(&key, row.as_bytes(), MapFlags::ANY).map_err(failed)
    }

    /// Starts to answer requests to this address and port with UTC. Unspecified addresses are not
    /// resolved here: the caller names every address.
    pub fn listen(&self, at: SocketAddr) -> Result<(), XdpError> {
        self.listen_on(at, Timeline::Stepped)
    }

    /// The same, with the time of this timeline.
    pub fn listen_on(&self, at: SocketAddr, timeline: Timeline) -> Result<(), XdpError> {
        let key = listen_key(at);
        self.loaded
            .map("listen_set")?
            .update(key.as_bytes(), &[timeline as u8], MapFlags::ANY)
            .map_err(|error| XdpError::Map(object::to_io(&error)))?;
        self.forget_what_was_found();
        Ok(())
    }

    /// Stops answering requests to this address and port; one that was not given is no error.
    pub fn unlisten(&self, at: SocketAddr) -> Result<(), XdpError> {
        let key = listen_key(at);
        let deleted = self.loaded.map("listen_set")?.delete(key.as_bytes());
        self.forget_what_was_found();
        match deleted {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(XdpError::Map(object::to_io(&error)))
            }
            _ => Ok(()),
        }
    }

    /// Makes every processor look the next destination up again.
    fn forget_what_was_found(&self) {
        self.page.atomic(0, offset_of!(ClockPage, listen_epoch)).fetch_add(1, Ordering::SeqCst);
    }

    /// What was counted since loading.
    #[must_use]
    pub fn counts(&self) -> ResponderCounts {
        let mut total = ResponderCounts::default();
        for processor in 0..self.states.entries() {
            let own = self.states.read(processor);
            total.answered_ipv4 += own.answered_ipv4;
            total.answered_ipv6 += own.answered_ipv6;
            total.answered_interleaved += own.answered_interleaved;
            total.admitted += own.admitted;
            total.handed_over += own.handed_over;
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

    /// Requests answered on each processor since loading, by its number.
    #[must_use]
    pub fn answered_by_core(&self) -> Vec<u64> {
        let own = (0..self.states.entries()).map(|processor| self.states.read(processor));
        own.map(|own| own.answered_ipv4 + own.answered_ipv6).collect()
    }

    /// Runs the program once over a frame, as if it had arrived, without sending anything.
    pub fn test_run(&self, frame: &[u8]) -> Result<Outcome, XdpError> {
        test_run::once(self.loaded.program("respond")?, frame)
    }

    /// The same with the program for interfaces whose interleaved requests go up.
    pub fn test_run_basic(&self, frame: &[u8]) -> Result<Outcome, XdpError> {
        test_run::once(self.loaded.program("respond_basic")?, frame)
    }
}

/// The writing end of a responder's clock page; there is only one.
pub struct ClockWriter {
    page: Arc<SharedArray<ClockPage>>,
}

impl ClockWriter {
    /// Publishes an edition of the clock for each timeline: they are written into the slots that
    /// nobody reads, which then become those that are read. There is one writer, so one edition is
    /// written at a time.
    pub fn publish(&mut self, stepped: &ClockEdition, smeared: &ClockEdition) {
        let active = self.page.atomic(0, offset_of!(ClockPage, active));
        let next = 1 - (active.load(Ordering::Relaxed) & 1);
        for (timeline, edition) in (0..).zip([stepped, smeared]) {
            self.write(next as usize * TIMELINES + timeline, edition);
        }
        active.store(next, Ordering::Release);
    }

    fn write(&self, slot: usize, edition: &ClockEdition) {
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

fn fields(edition: &ClockEdition) -> ClockFields {
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
