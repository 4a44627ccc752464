//! XDP engine of the server: loading, clock page, listen addresses, rate limits, and counters.

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use horolog_sys::netlink::{Link, MacAddress, VlanId};
use horolog_time::leap::LeapSecondRepresentation;
use horolog_time::{Monotonic, Timebase, Timestamp};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes;

use crate::abi::{
    ClockPage, ClockSlot, ClockSlotFields, LimitRules, ListenKey, PASSED_REASONS, REFUSALS,
    ResponderCpuState, SocketRange, StationKey, TIMELINES,
};
use crate::attach::{AttachMode, Attachment, Interface};
use crate::limits::{LimitMaps, ListedPrefix, ResponderSettings};
use crate::map::MappedArrayMap;
use crate::object::{self, LoadedBpfObject};
use crate::test_run::{self, TestRunOutcome};
use crate::{XdpError, XskSocket, object::possible_processors};

const NAME: &str = "responder";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/responder.o"));

/// Page update: clock values of replies until the next update.
#[derive(Clone, Copy, Debug)]
pub struct ClockPageUpdate {
    /// Conversion from monotonic to NTP time, with its expiry.
    pub timebase: Timebase,
    /// Leap indicator, 0 to 3, before the leap-second step of the time base.
    pub leap: u8,
    /// Leap indicator after the leap-second step of the time base.
    pub leap_after: u8,
    /// Stratum as encoded in the NTP packet.
    pub stratum: u8,
    /// Precision, log2 of seconds.
    pub precision: i8,
    /// Root delay in NTP short format.
    pub root_delay: u32,
    /// Root dispersion in NTP short format.
    pub root_dispersion: u32,
    /// Reference identifier, as the packet carries it.
    pub reference_id: [u8; 4],
    /// Reference timestamp, 64 bits of NTP time.
    pub reference: u64,
    /// TAI minus UTC in seconds before the time base's step; `None` if unknown, then PTP serves
    /// UTC.
    pub tai_minus_utc_s: Option<i16>,
}

/// MAC address at which this host accepts frames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StationAddress {
    /// Index of the ingress interface.
    pub interface: u32,
    /// VLAN tag of the frames; `None` for untagged frames.
    pub vlan: Option<VlanId>,
    /// MAC address to which the frames are sent.
    pub mac: MacAddress,
}

impl StationAddress {
    /// Returns the address at which frames for an interface arrive; frames for a VLAN arrive at the
    /// underlying interface. `None` if none can arrive: the interface has no MAC address or is
    /// down, or the underlying interface is unknown or in another network namespace.
    #[must_use]
    pub fn from_link(link: &Link) -> Option<Self> {
        let mac = link.mac.filter(|_| link.up)?;
        match (link.vlan, link.peer_index, link.peer_nsid) {
            (None, ..) => Some(Self { interface: link.index, vlan: None, mac }),
            (vlan, Some(interface), None) => Some(Self { interface, vlan, mac }),
            _ => None,
        }
    }
}

/// XDP action by which the responder sends replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdpReplySendAction {
    /// `XDP_TX`, the fastest. On a veth the peer end must run an XDP program; otherwise its
    /// receiver is not woken.
    Transmit,
    /// `XDP_REDIRECT` to the ingress interface.
    Redirect,
}

/// Handling of requests on an interface that may be in interleaved mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterleavedHandling {
    /// Answered by this program, with a single clock reading as the transmit timestamp; in basic
    /// mode if [`ResponderSettings::interleaved_slots`] is 0.
    Answer,
    /// Passed to the sockets, which have more accurate transmit timestamps for this interface.
    Pass,
}

/// Reason for which the responder passed a frame to the network stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassedReason {
    /// Not a UDP packet over IP to a listen address and port, or in a VLAN in which this host has
    /// no interface.
    NotNtp,
    /// The lengths or a checksum are wrong, bytes follow the datagram, or a UDP checksum over IPv6
    /// is missing.
    Malformed,
    /// A fragment of a packet.
    Fragment,
    /// Source address that must not be answered, or a multicast or broadcast address.
    Address,
    /// Not exactly the length of one NTP header.
    Length,
    /// NTP version or mode that this program does not answer.
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
    /// NTP requests over IPv4 that were answered, including kisses.
    pub answered_ipv4: u64,
    /// NTP requests over IPv6 that were answered, including kisses.
    pub answered_ipv6: u64,
    /// Requests answered in interleaved mode, part of `answered_ipv4` or `answered_ipv6`.
    pub answered_interleaved: u64,
    /// Requests answered in symmetric passive mode (2), part of `answered_ipv4` or `answered_ipv6`.
    pub answered_symmetric: u64,
    /// Requests that passed rate limits and lists; 0 without either.
    pub admitted: u64,
    /// Requests refused by rate limits or lists, in the order of [`AdmissionRefusal::ALL`].
    pub refused: [u64; REFUSALS],
    /// Requests longer than one header that were redirected to `AF_XDP` sockets.
    pub to_af_xdp: u64,
    /// PTP delay requests that were answered.
    pub answered_ptp: u64,
    /// PTP `NetSync` Monitor requests that were answered.
    pub answered_ptp_monitor: u64,
    /// Frames passed to the network stack, in the order of [`PassedReason::ALL`].
    pub passed: [u64; PASSED_REASONS],
}

/// Loaded responder; it answers on the interfaces to which it is attached.
pub struct Responder {
    page: Arc<MappedArrayMap<ClockPage>>,
    states: MappedArrayMap<ResponderCpuState>,
    limits: Mutex<LimitMaps>,
    pub(crate) loaded: LoadedBpfObject,
}

impl Responder {
    /// Loads the program and returns it with the writer of its clock page. It answers nothing until
    /// a clock page is published, addresses are set and it is attached.
    pub fn load(
        settings: &ResponderSettings,
    ) -> Result<(Self, ResponderClockPageWriter), XdpError> {
        let processors = possible_processors();
        let sizes = settings.map_sizes();
        let loaded = LoadedBpfObject::load(NAME, OBJECT, |open| {
            object::set_map_entries(open, NAME, "states", processors)?;
            sizes
                .iter()
                .try_for_each(|&(map, size)| object::set_map_entries(open, NAME, map, size))?;
            object::set_constants(open, NAME, settings.responder_config().as_bytes())
        })?;
        let page = Arc::new(MappedArrayMap::map(loaded.map("clock_pages")?.as_fd(), 1)?);
        let states = MappedArrayMap::map(loaded.map("states")?.as_fd(), processors)?;
        let rules = MappedArrayMap::map(loaded.map("limit_rules")?.as_fd(), 1)?;
        let sets = MappedArrayMap::map(loaded.map("limit_sets")?.as_fd(), sizes[0].1)?;
        let limits = Mutex::new(LimitMaps::new(rules, sets));
        Ok((
            Self { page: Arc::clone(&page), states, limits, loaded },
            ResponderClockPageWriter { page },
        ))
    }

    /// Attaches the program for the reply action `path` and the handling `interleaved` to the
    /// interface.
    pub fn attach(
        &self,
        interface: &Interface,
        mode: AttachMode,
        path: XdpReplySendAction,
        interleaved: InterleavedHandling,
    ) -> Result<Attachment, XdpError> {
        let program = match (path, interleaved) {
            (XdpReplySendAction::Transmit, InterleavedHandling::Answer) => "respond",
            (XdpReplySendAction::Redirect, InterleavedHandling::Answer) => "respond_by_redirect",
            (XdpReplySendAction::Transmit, InterleavedHandling::Pass) => "respond_basic",
            (XdpReplySendAction::Redirect, InterleavedHandling::Pass) => {
                "respond_basic_by_redirect"
            }
        };
        Attachment::new(self.loaded.program(program)?, interface, mode)
    }

    /// Replaces rules and lists, which apply only if the settings have limits; `rules.epoch` is
    /// ignored. Until this returns, the old ones may apply to some clients and the new ones to
    /// others.
    pub fn set_limits(&self, rules: &LimitRules, lists: &[ListedPrefix]) -> Result<(), XdpError> {
        // After a panic of another holder, this call completes the partial change of the maps.
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.set_rules(&self.loaded, rules, lists)
    }

    /// Returns the number of clients in the rate-limit table, including idle ones.
    #[must_use]
    pub fn limited_clients(&self) -> u64 {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).count_clients()
    }

    /// Returns the time of the last check of a client against rate limits and lists; `None` before
    /// the first.
    #[must_use]
    pub fn last_checked_at(&self) -> Option<Timestamp<Monotonic>> {
        let instants =
            (0..self.states.entries()).map(|processor| self.states.read(processor).last_checked_ns);
        let last = instants.max().filter(|&instant| instant != 0)?;
        Some(Timestamp::from_ns(last.cast_signed()))
    }

    /// Redirects requests longer than one header that arrive by the interface to `sockets`, one for
    /// each of its receive queues in order; queues without a socket pass them. `first` is the
    /// number of queues of other interfaces for which this was called before; together they must
    /// not exceed [`ResponderSettings::af_xdp_queues`]. Rate limits and lists apply to these
    /// requests as well.
    pub fn redirect_to(
        &self,
        interface: &Interface,
        sockets: &[XskSocket],
        first: u32,
    ) -> Result<(), XdpError> {
        let failed = |error: libbpf_rs::Error| XdpError::Map(object::to_io_error(&error));
        let queues = self.loaded.map("queues")?;
        for (number, socket) in (first..).zip(sockets) {
            let descriptor = socket.as_fd().as_raw_fd().cast_unsigned();
            let value = descriptor.to_ne_bytes();
            queues.update(&number.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed)?;
        }
        let queue_rows = self.loaded.map("queue_rows")?;
        let key = interface.index.to_ne_bytes();
        let row = SocketRange { first, count: sockets.len() as u32 };
        queue_rows.update(&key, row.as_bytes(), MapFlags::ANY).map_err(failed)
    }

    /// Starts to answer requests to this address and port with UTC. An unspecified address is not
    /// expanded: name every address of the host.
    pub fn answer_at(&self, address: SocketAddr) -> Result<(), XdpError> {
        self.answer_with_timeline(address, LeapSecondRepresentation::Stepped)
    }

    /// Starts to answer requests to this address and port with the time of `timeline`.
    pub fn answer_with_timeline(
        &self,
        address: SocketAddr,
        timeline: LeapSecondRepresentation,
    ) -> Result<(), XdpError> {
        let key = listen_key(address);
        self.loaded
            .map("listen_set")?
            .update(key.as_bytes(), &[timeline as u8], MapFlags::ANY)
            .map_err(|error| XdpError::Map(object::to_io_error(&error)))?;
        self.invalidate_lookups();
        Ok(())
    }

    /// Stops answering requests to this address and port; an unknown one is no error.
    pub fn stop_answering(&self, address: SocketAddr) -> Result<(), XdpError> {
        let removed = self.set_member("listen_set", listen_key(address).as_bytes(), false);
        self.invalidate_lookups();
        removed
    }

    /// Starts or stops answering requests to a MAC address of this host.
    pub fn set_station(&self, station: StationAddress, serve: bool) -> Result<(), XdpError> {
        let StationAddress { interface, vlan, mac } = station;
        let VlanId { protocol, identifier } = vlan.unwrap_or(VlanId { protocol: 0, identifier: 0 });
        let key = StationKey {
            interface,
            protocol: protocol.to_be_bytes(),
            identifier: identifier.to_be_bytes(),
            mac,
            padding: [0; 2],
        };
        let changed = self.set_member("stations", key.as_bytes(), serve);
        self.invalidate_lookups();
        changed
    }

    /// Adds or removes a broadcast address of this host's networks; requests with such a source are
    /// not answered.
    pub fn set_broadcast(&self, address: Ipv4Addr, refuse: bool) -> Result<(), XdpError> {
        self.set_member("broadcasts", &address.octets(), refuse)
    }

    /// Adds a key to a set, or removes it; removing a missing key is no error.
    fn set_member(&self, set: &'static str, key: &[u8], include: bool) -> Result<(), XdpError> {
        let set = self.loaded.map(set)?;
        let changed = if include { set.update(key, &[1], MapFlags::ANY) } else { set.delete(key) };
        match changed {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(XdpError::Map(object::to_io_error(&error)))
            }
            _ => Ok(()),
        }
    }

    /// Invalidates the lookups of listen and MAC addresses that each CPU has cached.
    fn invalidate_lookups(&self) {
        self.page.atomic(0, offset_of!(ClockPage, listen_epoch)).fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the sum of the counts of all CPUs since loading.
    #[must_use]
    pub fn counts(&self) -> ResponderCounts {
        let mut counts = ResponderCounts::default();
        for processor in 0..self.states.entries() {
            let state = self.states.read(processor);
            counts.answered_ipv4 += state.answered_ipv4;
            counts.answered_ipv6 += state.answered_ipv6;
            counts.answered_interleaved += state.answered_interleaved;
            counts.answered_symmetric += state.answered_symmetric;
            counts.admitted += state.admitted;
            counts.to_af_xdp += state.to_af_xdp;
            counts.answered_ptp += state.answered_ptp;
            counts.answered_ptp_monitor += state.answered_ptp_monitor;
            for (sum, refused) in counts.refused.iter_mut().zip(state.refused) {
                *sum += refused;
            }
            for (sum, passed) in counts.passed.iter_mut().zip(state.passed) {
                *sum += passed;
            }
        }
        counts
    }

    /// Returns the NTP requests answered since loading, including kisses, indexed by CPU number.
    #[must_use]
    pub fn answered_by_core(&self) -> Vec<u64> {
        let states = (0..self.states.entries()).map(|processor| self.states.read(processor));
        states.map(|state| state.answered_ipv4 + state.answered_ipv6).collect()
    }

    /// Runs the program once over a frame, as if it had arrived, without sending a reply.
    pub fn test_run(&self, frame: &[u8]) -> Result<TestRunOutcome, XdpError> {
        test_run::run_once(self.loaded.program("respond")?, frame)
    }

    /// Runs the program for [`InterleavedHandling::Pass`] once over a frame, without sending a
    /// reply.
    pub fn test_run_basic(&self, frame: &[u8]) -> Result<TestRunOutcome, XdpError> {
        test_run::run_once(self.loaded.program("respond_basic")?, frame)
    }
}

/// Writer of a responder's clock page; there is only one.
pub struct ResponderClockPageWriter {
    page: Arc<MappedArrayMap<ClockPage>>,
}

impl ResponderClockPageWriter {
    /// Publishes the clock values of both timelines: writes the inactive slots and then makes them
    /// active. `&mut self` ensures that one update is written at a time.
    pub fn publish(&mut self, stepped: &ClockPageUpdate, smeared: &ClockPageUpdate) {
        let active = self.page.atomic(0, offset_of!(ClockPage, active));
        let next = 1 - (active.load(Ordering::Relaxed) & 1);
        for (timeline, update) in (0..).zip([stepped, smeared]) {
            self.write(next as usize * TIMELINES + timeline, update);
        }
        active.store(next, Ordering::Release);
    }

    fn write(&self, slot: usize, update: &ClockPageUpdate) {
        let slot = offset_of!(ClockPage, slots) + slot * size_of::<ClockSlot>();
        let sequence = self.page.atomic(0, slot + offset_of!(ClockSlot, sequence));
        let odd = sequence.load(Ordering::Relaxed).wrapping_add(1) | 1;
        sequence.store(odd, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.page.write_part(0, slot + offset_of!(ClockSlot, fields), &clock_fields(update));
        sequence.store(odd.wrapping_add(1), Ordering::Release);
    }
}

pub(crate) fn listen_key(socket_address: SocketAddr) -> ListenKey {
    let address = match socket_address.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    ListenKey { address, port: socket_address.port().to_be_bytes(), reserved: [0; 2] }
}

fn clock_fields(update: &ClockPageUpdate) -> ClockSlotFields {
    ClockSlotFields {
        anchor_ns: update.timebase.anchor.as_ns() as u64,
        ntp_at_anchor: update.timebase.ntp_at_anchor.to_bits(),
        expires_ns: update.timebase.expires.as_ns() as u64,
        rate: update.timebase.rate,
        leap: update.leap,
        stratum: update.stratum,
        precision: update.precision,
        leap_after: update.leap_after,
        root_delay: update.root_delay.to_be_bytes(),
        root_dispersion: update.root_dispersion.to_be_bytes(),
        reference_id: update.reference_id,
        tai_minus_utc_s: update.tai_minus_utc_s.unwrap_or(0),
        tai_is_known: u16::from(update.tai_minus_utc_s.is_some()),
        reference: update.reference.to_be_bytes(),
        step_at_ns: update.timebase.step_at.as_ns() as u64,
        step: update.timebase.step.cast_unsigned(),
        reserved2: [0; 6],
    }
}
