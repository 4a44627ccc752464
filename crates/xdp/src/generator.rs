//! The in-kernel generator: loading, what stays the same through a run, the lanes' schedules, and
//! what was counted. When to send what is planned by the caller; nothing here keeps a schedule.

mod course;

pub use course::Counted;

use std::iter;
use std::mem::offset_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::Relaxed;

use libbpf_rs::{MapCore, MapFlags};
use zerocopy::FromZeros;

use crate::XdpError;
use crate::abi::{
    AskedAnswered, EXPONENTIAL_ENTRIES, GeneratorConfig, LANES_MAX, LEGS_MAX, Lane, Leg,
    OffsetTally, REQUEST_MAX, RawHistogram, SEEN_WORDS, Tally,
};
use crate::attach::{AttachMode, Attachment, Interface};
use crate::map::SharedArray;
use crate::object::{self, Loaded, possible_processors};
use crate::test_run::{self, Outcome};

const NAME: &str = "generator";
/// Bytes that the program cuts off every frame of a peer that changes their length.
const FRAME_EXCESS: usize = 2;
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/generator.o"));

/// What the target is asked for: `enum protocol`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Protocol {
    /// The time, by NTP.
    Ntp = 0,
    /// The delay, by PTP.
    PtpDelay = 1,
    /// The same with linuxptp's `NetSync` Monitor.
    PtpMonitor = 2,
}

/// How offsets of the server's timestamps are taken, against the instants at which the program sees
/// its replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetSettings {
    /// Taken off each of them, in ns.
    pub correction_ns: i64,
    /// Of the mean of the server's receive and transmit timestamps instead of the latter.
    pub mean_of_server: bool,
}

/// What stays the same through a run.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct GeneratorSettings {
    /// What the target is asked for.
    pub protocol: Protocol,
    /// Whether requests go to a group of hosts, where replies to all of them may come too; not
    /// together with [`Protocol::PtpMonitor`].
    pub multicast: bool,
    /// PTP's domain.
    pub domain: u8,
    /// The target's MAC address, where PTP is asked for in frames without IP.
    pub ethernet: Option<[u8; 6]>,
    /// How offsets of the server's timestamps are taken, where they are; in interleaved mode each
    /// client takes 8 bytes of memory more.
    pub offsets: Option<OffsetSettings>,
    /// The interface to send by; replies are expected there too.
    pub interface: Interface,
    /// The server's address.
    pub target: IpAddr,
    /// The server's port, of NTP.
    pub port: u16,
    /// Version of the requests, of NTP.
    pub version: u8,
    /// The most lanes that a trial has, 1 to [`crate::LANES_MAX`]; each takes 2 MiB of memory, and
    /// with [`Protocol::PtpMonitor`] up to 40 MiB, but all together no more than 80 MiB.
    pub lanes: u32,
    /// Whether the target sends requests back as they are: a reflector, not a time server.
    pub echo: bool,
    /// Whether requests are in interleaved mode; not together with [`TrialSettings::random_room`].
    pub interleaved: bool,
    /// The most clients that a trial has; in interleaved mode each takes 8 bytes of memory, with
    /// [`Protocol::PtpMonitor`] 4.
    pub clients: u32,
    /// Whether each client is counted apart, which takes 8 bytes of memory more for each; not
    /// together with [`TrialSettings::random_room`].
    pub single_clients: bool,
    /// Books of each processor: 1, or for trials with intervals or legs a power of two, at least as
    /// many as are open at the same time. Each takes 91 KiB of memory, with offsets 60 KiB more.
    pub books: u32,
    /// Whether it is one of several that send from the same processors, to be put in a row by
    /// [`Generator::attach_chain`].
    pub chained: bool,
    /// Whitens the token that every request carries.
    pub key: u64,
    /// Monotonic instant before which no request was sent, in ns.
    pub run_start_ns: u64,
    /// A reply that takes longer is late, in ns.
    pub reply_timeout_ns: u64,
    /// Frame of one request, from Ethernet to NTP or PTP, complete: the simulated source address
    /// and what the program fills in behind it must be 0, which is NTP's source port and
    /// timestamps, or PTP's clock identity and number. PTP's port number is that of lane 0. Both
    /// checksums are taken as not there.
    pub request: Vec<u8>,
    /// Sum of the 16-bit words, as they lie in memory, of the IPv4 header without its checksum, and
    /// of pseudo-header, UDP header and payload without the checksum.
    pub sums: (u64, u64),
    /// Address of the first simulated client; the others follow it.
    pub first_client: IpAddr,
    /// Quantiles of the exponential distribution with mean 1, scaled by 2^16;
    /// [`EXPONENTIAL_ENTRIES`] of them.
    pub exponential: &'static [u32],
}

/// What stays the same through a trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialSettings {
    /// Monotonic instant of the trial's start, in ns; replies to older requests are late.
    pub start_ns: u64,
    /// What `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC` by, in ns.
    pub realtime_ahead_ns: i64,
    /// Lanes.
    pub lanes: u32,
    /// Clients of every lane ...
    pub clients_per_lane: u32,
    /// ... and how many lanes, from the first on, have one more.
    pub lanes_with_one_more: u32,
    /// Where not 0, clients are taken from so many, scattered.
    pub random_room: u32,
    /// Whether intervals are exponentially distributed.
    pub exponential: bool,
    /// The length of the intervals that have books of their own, in ns; 0: one book is for all.
    pub interval_ns: u64,
    /// How many intervals there are.
    pub intervals: u64,
}

/// The generator, loaded and attached.
pub struct Generator {
    _attachment: Option<Attachment>,
    config: SharedArray<GeneratorConfig>,
    lanes: SharedArray<Lane>,
    tallies: SharedArray<Tally>,
    origins: SharedArray<u64>,
    offsets: SharedArray<OffsetTally>,
    asked_before: SharedArray<u32>,
    legs: SharedArray<Leg>,
    clients: SharedArray<AskedAnswered>,
    counts_clients: bool,
    processors: u32,
    books: u32,
    frame_len: usize,
    loaded: Loaded,
}

impl Generator {
    /// Loads the program for a run and attaches it in native mode to the interface.
    pub fn attach(settings: &GeneratorSettings) -> Result<Self, XdpError> {
        let generator = Self::load(settings)?;
        let program = generator.loaded.program("load")?;
        let attachment = Attachment::new(program, &settings.interface, AttachMode::Native)?;
        Ok(Self { _attachment: Some(attachment), ..generator })
    }

    /// Loads several, attaches the first of them, of which there has to be one, and puts the others
    /// behind it in a row: each hands on what is not its own. Frames are sent by the first one.
    pub fn attach_chain(settings: &[GeneratorSettings]) -> Result<Vec<Self>, XdpError> {
        let all = settings.iter().map(Self::load).collect::<Result<Vec<_>, _>>()?;
        // Never the length that a program wants, so that each sets it.
        let longest = all.iter().map(|one| one.frame_len).max().unwrap_or(0) + FRAME_EXCESS;
        for pair in all.windows(2) {
            let program = pair[1].loaded.program("load")?.as_raw_fd();
            pair[0]
                .loaded
                .map("next")?
                .update(&0_u32.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| XdpError::Map(object::to_io(&error)))?;
        }
        let mut chain = all.into_iter();
        let (Some(first), Some(settings)) = (chain.next(), settings.first()) else {
            return Ok(Vec::new());
        };
        let program = first.loaded.program("load")?;
        let attachment = Attachment::new(program, &settings.interface, AttachMode::Native)?;
        let first = Self { _attachment: Some(attachment), frame_len: longest, ..first };
        Ok(iter::once(first).chain(chain).collect())
    }

    /// Loads the program for a run and attaches it nowhere: for tests of single frames.
    pub fn load(settings: &GeneratorSettings) -> Result<Self, XdpError> {
        let processors = possible_processors();
        let origins = if settings.interleaved { settings.clients.max(1) } else { 1 };
        let mean_of_server = settings.offsets.is_some_and(|offsets| offsets.mean_of_server);
        let constants = [
            settings.protocol as u8,
            settings.multicast.into(),
            settings.offsets.is_some().into(),
            mean_of_server.into(),
            (settings.books > 1).into(),
            settings.single_clients.into(),
            settings.ethernet.is_some().into(),
            settings.chained.into(),
        ];
        let books = settings.books.max(1).next_power_of_two();
        let tallies = processors * books;
        let offset_tallies = if settings.offsets.is_some() { tallies } else { 1 };
        let legs = if books > 1 { settings.lanes * LEGS_MAX as u32 } else { 1 };
        let clients = if settings.single_clients { settings.clients.max(1) } else { 1 };
        let remembered = if settings.offsets.is_some() { origins } else { 1 };
        let loaded = Loaded::load(NAME, OBJECT, |open| {
            object::set_constants(open, NAME, &constants)?;
            object::size_map(open, NAME, "lanes", processors)?;
            object::size_map(open, NAME, "tallies", tallies)?;
            object::size_map(open, NAME, "legs", legs)?;
            object::size_map(open, NAME, "clients", clients)?;
            object::size_map(open, NAME, "origins", origins)?;
            object::size_map(open, NAME, "seen", settings.lanes * SEEN_WORDS)?;
            object::size_map(open, NAME, "exchanges", settings.exchanges() * settings.lanes)?;
            object::size_map(open, NAME, "latest", settings.latest())?;
            object::size_map(open, NAME, "offsets", offset_tallies)?;
            object::size_map(open, NAME, "last_received", remembered)
        })?;
        let config = SharedArray::map(loaded.map("config")?.as_fd(), 1)?;
        let lanes = SharedArray::map(loaded.map("lanes")?.as_fd(), processors)?;
        let tallies = SharedArray::map(loaded.map("tallies")?.as_fd(), tallies)?;
        let legs = SharedArray::map(loaded.map("legs")?.as_fd(), legs)?;
        let clients = SharedArray::map(loaded.map("clients")?.as_fd(), clients)?;
        let origins = SharedArray::map(loaded.map("origins")?.as_fd(), origins)?;
        let offsets = SharedArray::map(loaded.map("offsets")?.as_fd(), offset_tallies)?;
        let lanes_max = LANES_MAX as u32;
        let asked_before = SharedArray::map(loaded.map("asked_before")?.as_fd(), lanes_max)?;
        let entries = EXPONENTIAL_ENTRIES as u32;
        let table = SharedArray::<u32>::map(loaded.map("exponential")?.as_fd(), entries)?;
        for (index, quantile) in (0..entries).zip(settings.exponential) {
            table.write(index, quantile);
        }
        config.write(0, &GeneratorConfig { processors, ..config_of(settings) });
        // A peer that changes a frame's length changes it for good: the kernel sets it right again
        // only where the program has changed it as well. PTP's answers are longer.
        let frame_len = match settings.protocol {
            Protocol::Ntp => settings.request.len(),
            Protocol::PtpDelay | Protocol::PtpMonitor => settings.request.len() + FRAME_EXCESS,
        };
        let generator = Self {
            _attachment: None,
            config,
            lanes,
            tallies,
            origins,
            offsets,
            asked_before,
            legs,
            clients,
            counts_clients: settings.single_clients,
            processors,
            books,
            frame_len,
            loaded,
        };
        generator.clear();
        Ok(generator)
    }

    /// Forgets what was counted and how the lanes stood. Nothing may be sending.
    pub fn clear(&self) {
        (0..self.tallies.entries()).for_each(|entry| self.clear_tally(entry));
        (0..self.offsets.entries()).for_each(|entry| self.clear_offsets(entry));
        (0..self.processors).for_each(|processor| self.lanes.clear(processor));
        if self.counts_clients {
            (0..self.clients.entries()).for_each(|client| self.clients.clear(client));
        }
    }

    fn clear_tally(&self, entry: u32) {
        self.tallies.clear(entry);
        for histogram in [
            offset_of!(Tally, rtt_ns),
            offset_of!(Tally, response_ns),
            offset_of!(Tally, lateness_ns),
        ] {
            let min = histogram + offset_of!(RawHistogram, min);
            self.tallies.write_part(entry, min, &u64::MAX);
        }
    }

    fn clear_offsets(&self, entry: u32) {
        self.offsets.clear(entry);
        for histogram in [offset_of!(OffsetTally, negative), offset_of!(OffsetTally, positive)] {
            let min = histogram + offset_of!(RawHistogram, min);
            self.offsets.write_part(entry, min, &u64::MAX);
        }
    }

    /// Readies a trial, behind whose start what comes until then lies. Nothing may be sending.
    pub fn set_trial(&self, trial: &TrialSettings) {
        let mut config = self.config.read(0);
        config.trial_start_ns = trial.start_ns;
        config.realtime_ahead_ns = trial.realtime_ahead_ns;
        config.lanes = trial.lanes;
        config.clients_per_lane = trial.clients_per_lane;
        config.lanes_with_one_more = trial.lanes_with_one_more;
        config.random_room = trial.random_room;
        config.exponential = trial.exponential.into();
        config.interval_ns = trial.interval_ns;
        config.first_book = 0;
        config.last_book = trial.intervals.saturating_sub(1);
        self.config.write(0, &config);
    }

    /// Expects replies by the interface with this index, and sends by it, instead of the run's:
    /// frames of a test run come in by the loopback interface only.
    pub fn set_interface(&self, index: u32) {
        self.config.write(0, &GeneratorConfig { interface: index, ..self.config.read(0) });
    }

    /// Says how many numbers of a lane, from 0 on, were asked before the trial: replies to others
    /// are to nothing that was asked. Nothing may be running.
    pub fn set_asked_before(&self, lane: u32, numbers: u32) {
        self.asked_before.write(lane, &numbers);
    }

    /// Gives a processor its lane.
    pub fn set_lane(&self, processor: u32, lane: &Lane) {
        self.lanes.write(processor, lane);
    }

    /// Ends the schedule of a processor's lane, which may be sending.
    pub fn end_lane(&self, processor: u32) {
        self.lanes.atomic(processor, offset_of!(Lane, end)).store(0, Relaxed);
    }

    /// How the lane of a processor stands.
    #[must_use]
    pub fn lane(&self, processor: u32) -> Lane {
        self.lanes.read(processor)
    }

    /// The receive timestamp, as NTP's 64 bits, of the last reply that a client got in interleaved
    /// mode; 0 where it got none.
    #[must_use]
    pub fn origin(&self, client: u32) -> u64 {
        self.origins.read(client)
    }

    /// Makes a client refer to a reply that was received by the server then.
    pub fn set_origin(&self, client: u32, receive: u64) {
        self.origins.write(client, &receive);
    }

    /// Processors that there are entries for.
    #[must_use]
    pub const fn processors(&self) -> u32 {
        self.processors
    }

    /// Sends from the processor that this thread is pinned to until about `repeat` frames were
    /// asked for or a signal reaches the thread. What is sent leaves in batches of `batch` frames
    /// asked for, due or not.
    pub fn send(&self, repeat: i32, batch: u32) -> Result<(), XdpError> {
        test_run::live(self.loaded.program("load")?, &vec![0; self.frame_len], repeat, batch)
    }

    /// Runs the program once over a frame without sending anything. It takes the loopback interface
    /// for the one that the frame came in by.
    pub fn test_run(&self, frame: &[u8]) -> Result<Outcome, XdpError> {
        test_run::once(self.loaded.program("load")?, frame)
    }
}

/// How many requests of a lane are kept until all their replies are there, at most ...
const EXCHANGES_OF_A_LANE: u32 = 1 << 20;
/// ... and of all lanes together.
const EXCHANGES_OF_ALL: u32 = 1 << 21;

impl GeneratorSettings {
    /// Exchanges of each lane, a power of two.
    const fn exchanges(&self) -> u32 {
        match self.protocol {
            Protocol::PtpMonitor => {
                let share = EXCHANGES_OF_ALL / self.lanes.next_power_of_two();
                if share < EXCHANGES_OF_A_LANE { share } else { EXCHANGES_OF_A_LANE }
            }
            _ => 1,
        }
    }

    /// Clients whose latest request is kept.
    fn latest(&self) -> u32 {
        if self.protocol == Protocol::PtpMonitor { self.clients.max(1) } else { 1 }
    }
}

fn config_of(settings: &GeneratorSettings) -> GeneratorConfig {
    let mut config = GeneratorConfig::new_zeroed();
    config.key = settings.key;
    config.run_start_ns = settings.run_start_ns;
    config.reply_timeout_ns = settings.reply_timeout_ns;
    config.interface = settings.interface.index;
    config.request_len = settings.request.len() as u32;
    config.target_port = settings.port.to_be_bytes();
    config.version = settings.version;
    config.echo = settings.echo.into();
    config.interleaved = settings.interleaved.into();
    config.domain = settings.domain;
    config.offset_correction_ns = settings.offsets.map_or(0, |offsets| offsets.correction_ns);
    config.exchange_mask = settings.exchanges() - 1;
    config.books_mask = settings.books.max(1).next_power_of_two() - 1;
    (config.ip_sum, config.udp_sum) = settings.sums;
    match (settings.ethernet, settings.target) {
        (Some(mac), _) => config.target[..6].copy_from_slice(&mac),
        (None, IpAddr::V4(target)) => config.target[..4].copy_from_slice(&target.octets()),
        (None, IpAddr::V6(target)) => {
            config.target = target.octets();
            config.ipv6 = 1;
        }
    }
    match settings.first_client {
        IpAddr::V4(first) => config.first_client = first.to_bits(),
        IpAddr::V6(first) => {
            config.prefix = first.octets();
            config.first_client = first.to_bits() as u32;
        }
    }
    let length = settings.request.len().min(REQUEST_MAX);
    config.request[..length].copy_from_slice(&settings.request[..length]);
    config
}
