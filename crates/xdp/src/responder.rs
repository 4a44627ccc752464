//! The server's XDP body: loading, the clock page that it reads, the addresses that it answers at,
//! and its counters.

use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use horolog_time::Timebase;
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes;

use crate::abi::{ClockFields, ClockPage, ClockSlot, ListenKey, PASSED_REASONS, ResponderState};
use crate::attach::{AttachMode, Attachment, Interface};
use crate::map::SharedArray;
use crate::object::{self, Loaded};
use crate::test_run::{self, Outcome};
use crate::{XdpError, object::possible_processors};

const NAME: &str = "responder";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/responder.o"));

/// What the responder says of the server's clock until the next edition.
#[derive(Clone, Copy, Debug)]
pub struct ClockEdition {
    /// From monotonic to NTP time, with the expiry.
    pub timebase: Timebase,
    /// Leap indicator, 0 to 3.
    pub leap: u8,
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
    ];
}

/// What the responder counted since it was loaded, over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounts {
    /// Requests over IPv4 that were answered.
    pub answered_ipv4: u64,
    /// Requests over IPv6 that were answered.
    pub answered_ipv6: u64,
    /// Frames that went on to the network stack, in the order of [`PassedReason::ALL`].
    pub passed: [u64; PASSED_REASONS],
}

/// The responder, loaded; it answers where it is attached.
pub struct Responder {
    page: Arc<SharedArray<ClockPage>>,
    states: SharedArray<ResponderState>,
    loaded: Loaded,
}

impl Responder {
    /// Loads the program, and returns the writing end of its clock too. It answers nothing before a
    /// clock edition is published, addresses are given and it is attached.
    pub fn load() -> Result<(Self, ClockWriter), XdpError> {
        let processors = possible_processors();
        let loaded =
            Loaded::load(NAME, OBJECT, |open| object::size_map(open, NAME, "states", processors))?;
        let page = Arc::new(SharedArray::map(loaded.map("clock_pages")?.as_fd(), 1)?);
        let states = SharedArray::map(loaded.map("states")?.as_fd(), processors)?;
        Ok((Self { page: Arc::clone(&page), states, loaded }, ClockWriter { page }))
    }

    /// Attaches it to the interface, in this mode, to reply by this path.
    pub fn attach(
        &self,
        interface: &Interface,
        mode: AttachMode,
        path: ReplyPath,
    ) -> Result<Attachment, XdpError> {
        let program = match path {
            ReplyPath::Transmit => "respond",
            ReplyPath::Redirect => "respond_by_redirect",
        };
        Attachment::new(self.loaded.program(program)?, interface, mode)
    }

    /// Starts to answer requests to this address and port. Unspecified addresses are not resolved
    /// here: the caller names every address.
    pub fn listen(&self, at: SocketAddr) -> Result<(), XdpError> {
        let key = listen_key(at);
        self.loaded
            .map("listen_set")?
            .update(key.as_bytes(), &[1], MapFlags::ANY)
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
}

/// The writing end of a responder's clock page; there is only one.
pub struct ClockWriter {
    page: Arc<SharedArray<ClockPage>>,
}

impl ClockWriter {
    /// Publishes an edition of the clock: it is written into the slot that nobody reads, which then
    /// becomes the one that is read. There is one writer, so one edition is
    /// written at a time.
    pub fn publish(&mut self, edition: &ClockEdition) {
        let active = self.page.atomic(0, offset_of!(ClockPage, active));
        let next = 1 - (active.load(Ordering::Relaxed) & 1);
        let slot = offset_of!(ClockPage, slots) + next as usize * size_of::<ClockSlot>();
        let sequence = self.page.atomic(0, slot + offset_of!(ClockSlot, sequence));
        let odd = sequence.load(Ordering::Relaxed).wrapping_add(1) | 1;
        sequence.store(odd, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.page.write_part(0, slot + offset_of!(ClockSlot, fields), &fields(edition));
        sequence.store(odd.wrapping_add(1), Ordering::Release);
        active.store(next, Ordering::Release);
    }
}

fn listen_key(at: SocketAddr) -> ListenKey {
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
        reserved: 0,
        root_delay: edition.root_delay.to_be_bytes(),
        root_dispersion: edition.root_dispersion.to_be_bytes(),
        reference_id: edition.reference_id,
        reserved2: 0,
        reference: edition.reference.to_be_bytes(),
    }
}
