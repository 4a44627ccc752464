//! Messages between both ends: a greeting that defines the work on a connection, a welcome with
//! facts or a refusal, and a report at the end. Numbers are big-endian. Pure; any input is parsed
//! without a panic, and a parsed message is emitted as the same bytes.
//!
//! | greeting, 40 bytes | | welcome, 16 bytes | | report, 88 bytes | |
//! |---|---|---|---|---|---|
//! | 0..8 | [`MAGIC`] | 0..8 | [`MAGIC`] | 0..8 | [`MAGIC`] |
//! | 8 | version | 8 | version | 8..40 | bytes, ns, exchanges, longest response time in ns |
//! | 9 | work | 9 | verdict | 40..56 | samples of held data |
//! | 10..12 | flags | 10..12 | length of the facts | 56..60 | congestion window |
//! | 12..16 | bytes of a request | 12..16 | the exceeded limit | 60..64 | segment size |
//! | 16..20 | bytes of a header | then | facts as text | 64..68 | round trip in µs |
//! | 20..24 | bytes of a body | | | 68..72 | retransmitted segments |
//! | 24..28 | answers in a batch | | | 72..76 | acknowledgement timeout in µs |
//! | 28..32 | time in ms | | | 76 | the bound that was reached |
//! | 32..36 | warm-up in ms | | | 77..80 | 0 |
//! | 36..40 | 0 | | | 80..88 | that bound in bytes |
//!
//! Requests and answers are all zeros. A far end that reaches a bound of its own sends its report
//! at once, in place of an answer, and ends.

use horolog_record::{HeldDataSamples, PathEndpoint, TcpInfoSummary};

/// First bytes of every message.
pub const MAGIC: [u8; 8] = *b"horo-tcp";
/// Version of this protocol.
pub const VERSION: u8 = 1;
/// Length of a greeting.
pub const HELLO_LEN: usize = 40;
/// Length of a welcome without its facts.
pub const WELCOME_LEN: usize = 16;
/// Length of a report.
pub const REPORT_LEN: usize = 88;
/// Most bytes of facts.
pub const FACTS_MAX: usize = 2_048;
/// Most characters of one fact.
const FACT_CHARS_MAX: usize = 200;

/// Purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionJob {
    /// Facts only.
    Facts,
    /// Requests and answers, in turn.
    Exchange,
    /// Far end receives.
    Sink,
    /// Far end sends.
    Source,
}

const WORKS: [ConnectionJob; 4] =
    [ConnectionJob::Facts, ConnectionJob::Exchange, ConnectionJob::Sink, ConnectionJob::Source];

/// Socket options and answering mode of the far end. Names as in the socket options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches of a socket")]
pub struct ConnectionFlags {
    /// `TCP_NODELAY`.
    pub no_delay: bool,
    /// `TCP_QUICKACK` at the beginning.
    pub quick_ack_once: bool,
    /// `TCP_QUICKACK` before every receive.
    pub quick_ack_each: bool,
    /// `TCP_CORK` before the first answer of a batch, and off after the last one.
    pub cork: bool,
    /// Body sent from a file.
    pub send_file: bool,
    /// Connection closed instead of the cork removed.
    pub close: bool,
    /// Cork never removed.
    pub forget: bool,
    /// Far end samples the data held by its socket while it waits.
    pub observe: bool,
    /// Welcome delayed so long that the kernel does not take the greeting for a dialogue.
    pub settle: bool,
}

impl ConnectionFlags {
    const COUNT: usize = 9;

    const fn fields(self) -> [bool; Self::COUNT] {
        [
            self.no_delay,
            self.quick_ack_once,
            self.quick_ack_each,
            self.cork,
            self.send_file,
            self.close,
            self.forget,
            self.observe,
            self.settle,
        ]
    }

    fn bits(self) -> u16 {
        self.fields().iter().rev().fold(0, |bits, on| bits << 1 | u16::from(*on))
    }

    const fn from_bits(bits: u16) -> Option<Self> {
        if bits >> Self::COUNT != 0 {
            return None;
        }
        Some(Self {
            no_delay: bits & 1 != 0,
            quick_ack_once: bits >> 1 & 1 != 0,
            quick_ack_each: bits >> 2 & 1 != 0,
            cork: bits >> 3 & 1 != 0,
            send_file: bits >> 4 & 1 != 0,
            close: bits >> 5 & 1 != 0,
            forget: bits >> 6 & 1 != 0,
            observe: bits >> 7 & 1 != 0,
            settle: bits >> 8 & 1 != 0,
        })
    }
}

/// Greeting: the work on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Purpose.
    pub work: ConnectionJob,
    /// Flags.
    pub flags: ConnectionFlags,
    /// Bytes after which the far end answers, or size of a message of a sink.
    pub request_bytes: u32,
    /// Bytes of its first write.
    pub head_bytes: u32,
    /// Bytes of its second write; 0 for a single write.
    pub body_bytes: u32,
    /// Answers grouped under a cork.
    pub batch: u32,
    /// Time for which the connection is needed, in ms.
    pub time_ms: u32,
    /// Warm-up of a sink, during which it counts nothing, in ms.
    pub warm_up_ms: u32,
}

impl Hello {
    /// Parses a greeting; `None` if it is none of this version.
    #[must_use]
    pub fn parse(bytes: &[u8; HELLO_LEN]) -> Option<Self> {
        if bytes[..8] != MAGIC || bytes[8] != VERSION || bytes[36..] != [0; 4] {
            return None;
        }
        Some(Self {
            work: *WORKS.get(usize::from(bytes[9]))?,
            flags: ConnectionFlags::from_bits(u16::from_be_bytes([bytes[10], bytes[11]]))?,
            request_bytes: word(bytes, 12),
            head_bytes: word(bytes, 16),
            body_bytes: word(bytes, 20),
            batch: word(bytes, 24),
            time_ms: word(bytes, 28),
            warm_up_ms: word(bytes, 32),
        })
    }

    /// Returns the bytes of a greeting.
    #[must_use]
    pub fn emit(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = WORKS.iter().position(|work| *work == self.work).unwrap_or(0) as u8;
        bytes[10..12].copy_from_slice(&self.flags.bits().to_be_bytes());
        let words = [
            self.request_bytes,
            self.head_bytes,
            self.body_bytes,
            self.batch,
            self.time_ms,
            self.warm_up_ms,
        ];
        put(&mut bytes, 12, &words);
        bytes
    }
}

/// Decision of the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionVerdict {
    /// Accepted.
    Accepted,
    /// Connection limit reached.
    Busy,
    /// Connection limit of this address reached.
    BusyForAddress,
    /// Time above its limit.
    TooLong,
    /// Message size above its limit.
    TooLarge,
    /// Invalid greeting.
    Malformed,
    /// Hourly byte budget used up.
    BudgetExhausted,
}

const VERDICTS: [AdmissionVerdict; 7] = [
    AdmissionVerdict::Accepted,
    AdmissionVerdict::Busy,
    AdmissionVerdict::BusyForAddress,
    AdmissionVerdict::TooLong,
    AdmissionVerdict::TooLarge,
    AdmissionVerdict::Malformed,
    AdmissionVerdict::BudgetExhausted,
];

/// Response to a greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpWelcome {
    /// Decision of the far end.
    pub verdict: AdmissionVerdict,
    /// Bytes of facts that follow.
    pub facts_bytes: u16,
    /// Exceeded limit, in connections, ms or bytes; for a used-up budget, the seconds until there
    /// is more.
    pub limit: u32,
}

impl TcpWelcome {
    /// Parses a welcome; `None` if it is none of this version, or announces too much.
    #[must_use]
    pub fn parse(bytes: &[u8; WELCOME_LEN]) -> Option<Self> {
        let facts_bytes = u16::from_be_bytes([bytes[10], bytes[11]]);
        if bytes[..8] != MAGIC || bytes[8] != VERSION || usize::from(facts_bytes) > FACTS_MAX {
            return None;
        }
        let verdict = *VERDICTS.get(usize::from(bytes[9]))?;
        Some(Self { verdict, facts_bytes, limit: word(bytes, 12) })
    }

    /// Returns the bytes of a welcome.
    #[must_use]
    pub fn emit(&self) -> [u8; WELCOME_LEN] {
        let mut bytes = [0; WELCOME_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = VERDICTS.iter().position(|one| *one == self.verdict).unwrap_or(0) as u8;
        bytes[10..12].copy_from_slice(&self.facts_bytes.to_be_bytes());
        put(&mut bytes, 12, &[self.limit]);
        bytes
    }
}

/// Bound of the far end on the bytes that it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteBudget {
    /// Per connection.
    Connection,
    /// Per hour, for all its connections.
    Hour,
}

const BOUNDS: [Option<ByteBudget>; 3] =
    [None, Some(ByteBudget::Connection), Some(ByteBudget::Hour)];

/// Far end's observation of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FarEndReport {
    /// Bytes received after the warm-up.
    pub bytes: u64,
    /// Time in which they arrived, in ns.
    pub duration_ns: u64,
    /// Requests answered.
    pub exchanges: u64,
    /// Longest time from a complete request to the write of its answer, in ns.
    pub service_max_ns: u64,
    /// Samples of the data held by its socket while it waited.
    pub held: HeldDataSamples,
    /// State of its socket at the end.
    pub tcp: TcpInfoSummary,
    /// Bound of its own at which it ended, if it did.
    pub bound: Option<ByteBudget>,
    /// Size of that bound in bytes.
    pub bound_bytes: u64,
}

impl FarEndReport {
    /// Parses a report; `None` if it is none.
    #[must_use]
    pub fn parse(bytes: &[u8; REPORT_LEN]) -> Option<Self> {
        if bytes[..8] != MAGIC || bytes[77..80] != [0; 3] {
            return None;
        }
        let small = |at: usize| u64::from(word(bytes, at));
        Some(Self {
            bytes: long(bytes, 8),
            duration_ns: long(bytes, 16),
            exchanges: long(bytes, 24),
            service_max_ns: long(bytes, 32),
            held: HeldDataSamples {
                nagle: small(40),
                window: small(44),
                cork: small(48),
                delivered: small(52),
            },
            tcp: TcpInfoSummary {
                cwnd: small(56),
                mss_bytes: small(60),
                rtt_ns: small(64) * 1_000,
                retransmitted: small(68),
                ato_ns: small(72) * 1_000,
            },
            bound: *BOUNDS.get(usize::from(bytes[76]))?,
            bound_bytes: long(bytes, 80),
        })
    }

    /// Returns the bytes of a report. A value too large for its field is emitted as the field's
    /// maximum.
    #[must_use]
    pub fn emit(&self) -> [u8; REPORT_LEN] {
        let mut bytes = [0; REPORT_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        let longs = [self.bytes, self.duration_ns, self.exchanges, self.service_max_ns];
        for (index, value) in longs.into_iter().enumerate() {
            bytes[8 + 8 * index..][..8].copy_from_slice(&value.to_be_bytes());
        }
        let (held, tcp) = (self.held, self.tcp);
        let words = [
            held.nagle,
            held.window,
            held.cork,
            held.delivered,
            tcp.cwnd,
            tcp.mss_bytes,
            tcp.rtt_ns / 1_000,
            tcp.retransmitted,
            tcp.ato_ns / 1_000,
        ];
        put(&mut bytes, 40, &words.map(|value| u32::try_from(value).unwrap_or(u32::MAX)));
        bytes[76] = BOUNDS.iter().position(|bound| *bound == self.bound).unwrap_or(0) as u8;
        bytes[80..].copy_from_slice(&self.bound_bytes.to_be_bytes());
        bytes
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.copied().map_or(0, u32::from_be_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.copied().map_or(0, u64::from_be_bytes)
}

fn put(bytes: &mut [u8], at: usize, words: &[u32]) {
    let fields = bytes.get_mut(at..).unwrap_or_default().chunks_exact_mut(4);
    for (field, value) in fields.zip(words) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Returns the facts of an end as the text that follows a welcome: one line `name=value` each.
#[must_use]
pub fn facts_text(end: &PathEndpoint) -> Vec<u8> {
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let facts = [
        ("node", end.hostname.clone()),
        ("cpu", end.cpu.clone()),
        ("cores", number(end.cores)),
        ("kernel", end.kernel.clone()),
        ("distribution", end.distribution.clone()),
        ("interface", end.interface.clone()),
        ("nic", end.nic.clone()),
        ("mtu", number(end.mtu)),
        ("congestion-control", end.congestion_control.clone()),
        ("program", end.program.clone()),
    ];
    let mut text = Vec::new();
    for (name, value) in facts {
        let Some(value) = value.and_then(|value| shown(&value)) else { continue };
        let line = format!("{name}={value}\n");
        if text.len() + line.len() <= FACTS_MAX {
            text.extend(line.bytes());
        }
    }
    text
}

/// Parses facts. Unknown and unprintable ones are left out.
#[must_use]
pub fn facts(text: &[u8]) -> PathEndpoint {
    let text = String::from_utf8_lossy(text.get(..FACTS_MAX).unwrap_or(text));
    let mut end = PathEndpoint::default();
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let value = shown(value);
        let number = || value.as_ref().and_then(|value| value.parse().ok());
        match name {
            "cores" => end.cores = number(),
            "mtu" => end.mtu = number(),
            "node" => end.hostname = value,
            "cpu" => end.cpu = value,
            "kernel" => end.kernel = value,
            "distribution" => end.distribution = value,
            "interface" => end.interface = value,
            "nic" => end.nic = value,
            "congestion-control" => end.congestion_control = value,
            "program" => end.program = value,
            _ => {}
        }
    }
    end
}

/// Returns a fact without terminal control characters, truncated to the display limit.
fn shown(value: &str) -> Option<String> {
    let value: String = value.chars().filter(|c| !c.is_control()).take(FACT_CHARS_MAX).collect();
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
