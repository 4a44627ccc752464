//! In-kernel generator: loading, constant settings of a run, schedules of the lanes, and counts.
//! The caller plans the send times.

mod profile;

pub use profile::GeneratorCounts;

use std::iter;
use std::mem::offset_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::Relaxed;

use libbpf_rs::{MapCore, MapFlags};
use zerocopy::FromZeros;

use crate::XdpError;
use crate::abi::{
    ClientCounts, DUPLICATE_WORDS, EXPONENTIAL_ENTRIES, GeneratorLane, LANES_MAX, LaneCounts,
    LaneServerOffsetCounts, RATE_SEGMENTS_MAX, REQUEST_MAX, RateSegment, RawGeneratorConfig,
    RawHistogram,
};
use crate::attach::{Attachment, Interface};
use crate::map::MappedArrayMap;
use crate::object::{self, LoadedBpfObject, possible_processors};
use crate::test_run::{self, TestRunOutcome};

const NAME: &str = "generator";
/// Bytes by which a frame for PTP requests is longer than a request, and a frame of a chain than
/// its longest frame, so that the program itself changes the length (see [`Generator::load`]).
const FRAME_EXCESS: usize = 2;
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/generator.o"));

/// Protocol of the requests, in the order of `enum protocol`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RequestProtocol {
    /// NTP requests.
    Ntp = 0,
    /// PTP delay requests.
    PtpDelay = 1,
    /// PTP delay requests with linuxptp's `NetSync` Monitor.
    PtpMonitor = 2,
}

/// Settings of offset measurement: the server's timestamps relative to the instants at which the
/// program receives its replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerOffsetSettings {
    /// Correction subtracted from each offset, in ns.
    pub correction_ns: i64,
    /// True for the mean of the server's receive and transmit timestamps, false for the transmit
    /// timestamp alone.
    pub mean_of_server: bool,
}

/// Settings of a generator that stay constant during a run: requests, target, clients and sizes of
/// the maps.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct GeneratorSettings {
    /// Protocol of the requests; it selects the code of the program when it is loaded.
    pub protocol: RequestProtocol,
    /// True if requests go to a multicast group, to which replies may be sent too. Not together
    /// with [`RequestProtocol::PtpMonitor`].
    pub multicast: bool,
    /// PTP domain.
    pub domain: u8,
    /// MAC address of the target for PTP over Ethernet (IEEE 1588-2019, annex E); `None` for IP.
    pub ethernet: Option<[u8; 6]>,
    /// Offset measurement, if any; in interleaved mode it takes 8 bytes more for each client.
    pub offsets: Option<ServerOffsetSettings>,
    /// Interface by which requests leave and replies arrive.
    pub interface: Interface,
    /// Address of the server.
    pub target: IpAddr,
    /// UDP port of the server.
    pub port: u16,
    /// NTP version of the requests.
    pub version: u8,
    /// Most lanes of a trial, 1 to [`crate::LANES_MAX`]. Each takes 2 MiB of memory; with
    /// [`RequestProtocol::PtpMonitor`] up to 40 MiB, but at most 80 MiB together.
    pub lanes: u32,
    /// True if the target is a reflector, which returns requests unchanged.
    pub echo: bool,
    /// True if requests are in interleaved mode; not together with
    /// [`TrialSettings::random_addresses`].
    pub interleaved: bool,
    /// Most clients of a trial. Each takes 8 bytes of memory in interleaved mode, 4 with
    /// [`RequestProtocol::PtpMonitor`].
    pub clients: u32,
    /// True if requests and replies are counted for each client, which takes 8 bytes more for each.
    /// Not together with [`TrialSettings::random_addresses`].
    pub counts_each_client: bool,
    /// Sets of interval counts of each CPU: 1, or for trials with intervals or rate segments a
    /// power of two not below the number of intervals open at once. Each set takes 91 KiB of
    /// memory, and 60 KiB more with offsets.
    pub open_intervals: u32,
    /// True if this generator is part of a chain ([`Generator::attach_chain`]) that sends from the
    /// same CPUs.
    pub chained: bool,
    /// Key that whitens the token of every request.
    pub key: u64,
    /// Monotonic instant before which no request was sent, in ns.
    pub run_start_ns: u64,
    /// Reply timeout, in ns.
    pub reply_timeout_ns: u64,
    /// Complete frame of one request, from the Ethernet header to NTP or PTP. The fields that the
    /// program fills in must be 0: source address, and NTP's source port and timestamps, or PTP's
    /// clock identity and sequence ID. The PTP port number must be that of lane 0. Both checksums
    /// are ignored.
    pub request: Vec<u8>,
    /// Sums of the 16-bit words in memory order: of the IPv4 header without its checksum, and of
    /// pseudo-header, UDP header and payload without the UDP checksum.
    pub sums: (u64, u64),
    /// Address of the first simulated client; further clients have the addresses after it.
    pub first_client: IpAddr,
    /// Quantiles of the exponential distribution with mean 1, scaled by 2^16;
    /// [`EXPONENTIAL_ENTRIES`] of them.
    pub exponential: &'static [u32],
}

/// Settings of a generator that stay constant during a trial: start, lanes, clients and intervals.
#[derive(Clone, Copy, Debug)]
pub struct TrialSettings {
    /// Start of the trial on the monotonic clock, in ns; replies to older requests count as late.
    pub start_ns: u64,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, in ns.
    pub realtime_minus_monotonic_ns: i64,
    /// Number of lanes that send in the trial.
    pub lanes: u32,
    /// Clients of every lane, without the extra one of the first lanes.
    pub clients_per_lane: u32,
    /// Number of first lanes that have one client more.
    pub lanes_with_one_more: u32,
    /// Number of addresses over which clients are scattered at random; 0 for consecutive clients.
    pub random_addresses: u32,
    /// True if intervals are exponentially distributed.
    pub exponential: bool,
    /// Length of the intervals with separate counts, in ns; 0 for one set of counts.
    pub interval_ns: u64,
    /// Number of intervals; requests after the last one count in the last.
    pub intervals: u64,
}

/// In-kernel generator, loaded and attached.
pub struct Generator {
    _attachment: Option<Attachment>,
    config: MappedArrayMap<RawGeneratorConfig>,
    lanes: MappedArrayMap<GeneratorLane>,
    lane_counts: MappedArrayMap<LaneCounts>,
    origins: MappedArrayMap<u64>,
    offsets: MappedArrayMap<LaneServerOffsetCounts>,
    sequences_before: MappedArrayMap<u32>,
    rate_segments: MappedArrayMap<RateSegment>,
    clients: MappedArrayMap<ClientCounts>,
    counts_clients: bool,
    processors: u32,
    open_intervals: u32,
    frame_len: usize,
    loaded: LoadedBpfObject,
}

impl Generator {
    /// Loads the program for a run and attaches it in native mode to the interface.
    pub fn attach(settings: &GeneratorSettings) -> Result<Self, XdpError> {
        let generator = Self::load(settings)?;
        let program = generator.loaded.program("load")?;
        let attachment = Attachment::new_sender(program, &settings.interface)?;
        Ok(Self { _attachment: Some(attachment), ..generator })
    }

    /// Loads a chain of generators, and attaches the first in native mode to the interface of its
    /// settings. Each passes frames that are not its own to the next; the first one sends for all
    /// of them. Empty without settings.
    pub fn attach_chain(settings: &[GeneratorSettings]) -> Result<Vec<Self>, XdpError> {
        let loaded = settings.iter().map(Self::load).collect::<Result<Vec<_>, _>>()?;
        // Longer than any request, so that each program sets the length itself.
        let longest =
            loaded.iter().map(|generator| generator.frame_len).max().unwrap_or(0) + FRAME_EXCESS;
        for pair in loaded.windows(2) {
            let program = pair[1].loaded.program("load")?.as_raw_fd();
            pair[0]
                .loaded
                .map("next")?
                .update(&0_u32.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| XdpError::Map(object::to_io_error(&error)))?;
        }
        let mut chain = loaded.into_iter();
        let (Some(first), Some(settings)) = (chain.next(), settings.first()) else {
            return Ok(Vec::new());
        };
        let program = first.loaded.program("load")?;
        let attachment = Attachment::new_sender(program, &settings.interface)?;
        let first = Self { _attachment: Some(attachment), frame_len: longest, ..first };
        Ok(iter::once(first).chain(chain).collect())
    }

    /// Loads the program for a run without attaching it: as a member of a chain, or for tests of
    /// single frames.
    pub fn load(settings: &GeneratorSettings) -> Result<Self, XdpError> {
        let processors = possible_processors();
        let origin_entries = if settings.interleaved { settings.clients.max(1) } else { 1 };
        let mean_of_server = settings.offsets.is_some_and(|offsets| offsets.mean_of_server);
        let constants = [
            settings.protocol as u8,
            settings.multicast.into(),
            settings.offsets.is_some().into(),
            mean_of_server.into(),
            (settings.open_intervals > 1).into(),
            settings.counts_each_client.into(),
            settings.ethernet.is_some().into(),
            settings.chained.into(),
        ];
        let open_intervals = settings.open_intervals.max(1).next_power_of_two();
        let lane_counts = processors * open_intervals;
        let offset_counts = if settings.offsets.is_some() { lane_counts } else { 1 };
        let rate_segments =
            if open_intervals > 1 { settings.lanes * RATE_SEGMENTS_MAX as u32 } else { 1 };
        let clients = if settings.counts_each_client { settings.clients.max(1) } else { 1 };
        let receive_entries = if settings.offsets.is_some() { origin_entries } else { 1 };
        let loaded = LoadedBpfObject::load(NAME, OBJECT, |open| {
            object::set_constants(open, NAME, &constants)?;
            object::set_map_entries(open, NAME, "lanes", processors)?;
            object::set_map_entries(open, NAME, "lane_counts", lane_counts)?;
            object::set_map_entries(open, NAME, "rate_segments", rate_segments)?;
            object::set_map_entries(open, NAME, "clients", clients)?;
            object::set_map_entries(open, NAME, "origins", origin_entries)?;
            object::set_map_entries(open, NAME, "answered_bits", settings.lanes * DUPLICATE_WORDS)?;
            object::set_map_entries(
                open,
                NAME,
                "exchanges",
                settings.exchanges_per_lane() * settings.lanes,
            )?;
            object::set_map_entries(open, NAME, "latest", settings.tracked_clients())?;
            object::set_map_entries(open, NAME, "offsets", offset_counts)?;
            object::set_map_entries(open, NAME, "last_received", receive_entries)
        })?;
        let config = MappedArrayMap::map(loaded.map("config")?.as_fd(), 1)?;
        let lanes = MappedArrayMap::map(loaded.map("lanes")?.as_fd(), processors)?;
        let lane_counts = MappedArrayMap::map(loaded.map("lane_counts")?.as_fd(), lane_counts)?;
        let rate_segments =
            MappedArrayMap::map(loaded.map("rate_segments")?.as_fd(), rate_segments)?;
        let clients = MappedArrayMap::map(loaded.map("clients")?.as_fd(), clients)?;
        let origins = MappedArrayMap::map(loaded.map("origins")?.as_fd(), origin_entries)?;
        let offsets = MappedArrayMap::map(loaded.map("offsets")?.as_fd(), offset_counts)?;
        let lanes_max = LANES_MAX as u32;
        let sequences_before =
            MappedArrayMap::map(loaded.map("sequences_before")?.as_fd(), lanes_max)?;
        let entries = EXPONENTIAL_ENTRIES as u32;
        let table = MappedArrayMap::<u32>::map(loaded.map("exponential")?.as_fd(), entries)?;
        for (index, quantile) in (0..entries).zip(settings.exponential) {
            table.write(index, quantile);
        }
        config.write(0, &RawGeneratorConfig { processors, ..generator_config(settings) });
        // A length changed by the far end persists in the recycled frame: the kernel restores it
        // only if the program has changed it as well. PTP replies are longer than requests.
        let frame_len = match settings.protocol {
            RequestProtocol::Ntp => settings.request.len(),
            RequestProtocol::PtpDelay | RequestProtocol::PtpMonitor => {
                settings.request.len() + FRAME_EXCESS
            }
        };
        let generator = Self {
            _attachment: None,
            config,
            lanes,
            lane_counts,
            origins,
            offsets,
            sequences_before,
            rate_segments,
            clients,
            counts_clients: settings.counts_each_client,
            processors,
            open_intervals,
            frame_len,
            loaded,
        };
        generator.clear();
        Ok(generator)
    }

    /// Clears the counts, including those of clients and offsets, and the lanes of all CPUs. Origin
    /// timestamps and rate segments are kept. No lane may be sending.
    pub fn clear(&self) {
        (0..self.lane_counts.entries()).for_each(|entry| self.clear_counts(entry));
        (0..self.offsets.entries()).for_each(|entry| self.clear_offsets(entry));
        (0..self.processors).for_each(|processor| self.lanes.clear(processor));
        if self.counts_clients {
            (0..self.clients.entries()).for_each(|client| self.clients.clear(client));
        }
    }

    fn clear_counts(&self, entry: u32) {
        self.lane_counts.clear(entry);
        for histogram in [
            offset_of!(LaneCounts, rtt_ns),
            offset_of!(LaneCounts, response_ns),
            offset_of!(LaneCounts, lateness_ns),
        ] {
            let min = histogram + offset_of!(RawHistogram, min);
            self.lane_counts.write_part(entry, min, &u64::MAX);
        }
    }

    fn clear_offsets(&self, entry: u32) {
        self.offsets.clear(entry);
        for histogram in [
            offset_of!(LaneServerOffsetCounts, negative),
            offset_of!(LaneServerOffsetCounts, positive),
        ] {
            let min = histogram + offset_of!(RawHistogram, min);
            self.offsets.write_part(entry, min, &u64::MAX);
        }
    }

    /// Prepares a trial; replies received before its start count for earlier trials. No lane may be
    /// sending.
    pub fn set_trial(&self, trial: &TrialSettings) {
        let mut config = self.config.read(0);
        config.trial_start_ns = trial.start_ns;
        config.realtime_minus_monotonic_ns = trial.realtime_minus_monotonic_ns;
        config.lanes = trial.lanes;
        config.clients_per_lane = trial.clients_per_lane;
        config.lanes_with_one_more = trial.lanes_with_one_more;
        config.random_addresses = trial.random_addresses;
        config.exponential = trial.exponential.into();
        config.interval_ns = trial.interval_ns;
        config.first_interval = 0;
        config.last_interval = trial.intervals.saturating_sub(1);
        self.config.write(0, &config);
    }

    /// Replaces the interface of the run by the one with this index, for test runs: their frames
    /// arrive by the loopback interface.
    pub fn set_interface(&self, index: u32) {
        self.config.write(0, &RawGeneratorConfig { interface: index, ..self.config.read(0) });
    }

    /// Sets how many sequence numbers of a lane, counted from 0, were used before the trial. A
    /// reply to a request from before the trial with any other number is invalid. No lane may be
    /// sending.
    pub fn set_sequences_before(&self, lane: u32, numbers: u32) {
        self.sequences_before.write(lane, &numbers);
    }

    /// Sets the schedule and progress of the lane that a CPU sends; it starts if `active` is 1.
    pub fn set_lane(&self, processor: u32, lane: &GeneratorLane) {
        self.lanes.write(processor, lane);
    }

    /// Ends the schedule of a CPU's lane, which may be sending.
    pub fn end_lane(&self, processor: u32) {
        self.lanes.atomic(processor, offset_of!(GeneratorLane, end)).store(0, Relaxed);
    }

    /// Returns the schedule and progress of the lane that a CPU sends; it may be torn while the
    /// lane is sending.
    #[must_use]
    pub fn lane(&self, processor: u32) -> GeneratorLane {
        self.lanes.read(processor)
    }

    /// Returns the receive timestamp (64-bit NTP format) of the last reply to a client, its origin
    /// timestamp in interleaved mode; 0 if there was none.
    #[must_use]
    pub fn origin(&self, client: u32) -> u64 {
        self.origins.read(client)
    }

    /// Sets the client's origin timestamp of interleaved mode: the server's receive timestamp.
    pub fn set_origin(&self, client: u32, receive: u64) {
        self.origins.write(client, &receive);
    }

    /// Returns the number of possible CPUs, each of which has map entries.
    #[must_use]
    pub const fn processors(&self) -> u32 {
        self.processors
    }

    /// Sends from the CPU to which this thread is pinned until about `repeat` frames were requested
    /// or a signal reaches the thread. Frames leave in batches: after every `batch` requested
    /// frames, whether or not each carried a request.
    pub fn send(&self, repeat: i32, batch: u32) -> Result<(), XdpError> {
        test_run::run_live(self.loaded.program("load")?, &vec![0; self.frame_len], repeat, batch)
    }

    /// Runs the program once over a frame without sending anything, with the loopback interface as
    /// the ingress interface.
    pub fn test_run(&self, frame: &[u8]) -> Result<TestRunOutcome, XdpError> {
        test_run::run_once(self.loaded.program("load")?, frame)
    }
}

/// Most requests of a lane that are stored until all their replies have arrived; a power of two.
const LANE_EXCHANGES_MAX: u32 = 1 << 20;
/// Most requests of all lanes that are stored until all their replies have arrived.
const TOTAL_EXCHANGES_MAX: u32 = 1 << 21;

impl GeneratorSettings {
    /// Returns the number of stored requests of each lane, a power of two; 1 except with
    /// [`RequestProtocol::PtpMonitor`].
    const fn exchanges_per_lane(&self) -> u32 {
        match self.protocol {
            RequestProtocol::PtpMonitor => {
                let share = TOTAL_EXCHANGES_MAX / self.lanes.next_power_of_two();
                if share < LANE_EXCHANGES_MAX { share } else { LANE_EXCHANGES_MAX }
            }
            _ => 1,
        }
    }

    /// Returns the number of clients whose latest request is stored; 1 except with
    /// [`RequestProtocol::PtpMonitor`].
    fn tracked_clients(&self) -> u32 {
        if self.protocol == RequestProtocol::PtpMonitor { self.clients.max(1) } else { 1 }
    }
}

fn generator_config(settings: &GeneratorSettings) -> RawGeneratorConfig {
    let mut config = RawGeneratorConfig::new_zeroed();
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
    config.exchange_mask = settings.exchanges_per_lane() - 1;
    config.intervals_mask = settings.open_intervals.max(1).next_power_of_two() - 1;
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
