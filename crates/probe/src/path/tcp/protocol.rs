//! Messages of a TCP path measurement: a hello that requests a job, a welcome with facts about the
//! far end's host or a refusal, and a report at the end. Numbers are big-endian. Pure; parsing
//! never panics, and a parsed message is emitted as the same bytes.
//!
//! | hello, 40 bytes | | welcome, 16 bytes | | report, 88 bytes | |
//! |---|---|---|---|---|---|
//! | 0..8 | [`MAGIC`] | 0..8 | [`MAGIC`] | 0..8 | [`MAGIC`] |
//! | 8 | version | 8 | version | 8..40 | bytes, ns, exchanges, longest response time in ns |
//! | 9 | job | 9 | verdict | 40..56 | samples of held-back data |
//! | 10..12 | flags | 10..12 | length of the facts | 56..60 | congestion window |
//! | 12..16 | bytes of a request | 12..16 | exceeded limit | 60..64 | segment size |
//! | 16..20 | bytes of a header | then | facts as text | 64..68 | round trip in µs |
//! | 20..24 | bytes of a body | | | 68..72 | retransmitted segments |
//! | 24..28 | replies in a batch | | | 72..76 | acknowledgement timeout in µs |
//! | 28..32 | time in ms | | | 76 | exhausted byte budget |
//! | 32..36 | warm-up in ms | | | 77..80 | 0 |
//! | 36..40 | 0 | | | 80..88 | that budget in bytes |
//!
//! Requests and replies are all zeros. A far end whose byte budget is exhausted sends its report at
//! once, in place of a reply, and closes the connection.

use horolog_record::{HeldDataSampleCounts, PathEndFacts, TcpInfoSummary};

/// First bytes of every message.
pub const MAGIC: [u8; 8] = *b"horo-tcp";
/// Version of this protocol.
pub const VERSION: u8 = 1;
/// Length of a hello in bytes.
pub const HELLO_LEN: usize = 40;
/// Length of a welcome in bytes, without the facts after it.
pub const WELCOME_LEN: usize = 16;
/// Length of a report in bytes.
pub const REPORT_LEN: usize = 88;
/// Maximum length of the facts in bytes.
pub const FACTS_MAX: usize = 2_048;
/// Maximum number of characters of one fact.
const FACT_CHARS_MAX: usize = 200;

/// Job that the far end does on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionJob {
    /// Send the facts about the host, no more.
    Facts,
    /// Answer requests one by one.
    Exchange,
    /// Receive a stream and count its bytes.
    Receive,
    /// Send a stream of messages.
    Send,
}

const CONNECTION_JOBS: [ConnectionJob; 4] =
    [ConnectionJob::Facts, ConnectionJob::Exchange, ConnectionJob::Receive, ConnectionJob::Send];

/// Socket options and reply mode of the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches of a socket")]
pub struct ConnectionFlags {
    /// `TCP_NODELAY`.
    pub no_delay: bool,
    /// `TCP_QUICKACK` at the beginning.
    pub quick_ack_once: bool,
    /// `TCP_QUICKACK` before every receive.
    pub quick_ack_each: bool,
    /// `TCP_CORK` before the first reply of a batch, and off after the last one.
    pub cork: bool,
    /// Send the body from a file (sendfile).
    pub send_file: bool,
    /// Close the connection after a batch, instead of removing the cork.
    pub close_to_uncork: bool,
    /// Leave the cork set, so that the kernel's timer releases the data.
    pub forget_cork: bool,
    /// Sample the data held back by the socket while the far end waits.
    pub observe: bool,
    /// Delay the welcome, so that the kernel does not take the hello for the start of an
    /// interactive dialogue (`pingpong` mode).
    pub delay_welcome: bool,
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
            self.close_to_uncork,
            self.forget_cork,
            self.observe,
            self.delay_welcome,
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
            close_to_uncork: bits >> 5 & 1 != 0,
            forget_cork: bits >> 6 & 1 != 0,
            observe: bits >> 7 & 1 != 0,
            delay_welcome: bits >> 8 & 1 != 0,
        })
    }
}

/// First message of a connection: the job and its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpHello {
    /// Job for the far end.
    pub job: ConnectionJob,
    /// Socket options and reply mode of the far end.
    pub flags: ConnectionFlags,
    /// Bytes of a request, which the far end answers; of a stream to the far end, the message size.
    pub request_bytes: u32,
    /// Bytes of the far end's first write per reply, or of each message of its stream.
    pub head_bytes: u32,
    /// Bytes of the second write per reply; 0 for a single write.
    pub body_bytes: u32,
    /// Number of replies under one cork.
    pub batch: u32,
    /// Measuring time in ms, without the warm-up.
    pub time_ms: u32,
    /// Warm-up in ms, which a receiving far end does not count.
    pub warm_up_ms: u32,
}

impl TcpHello {
    /// Parses a hello; `None` if it is invalid or of another version.
    #[must_use]
    pub fn parse(bytes: &[u8; HELLO_LEN]) -> Option<Self> {
        if bytes[..8] != MAGIC || bytes[8] != VERSION || bytes[36..] != [0; 4] {
            return None;
        }
        Some(Self {
            job: *CONNECTION_JOBS.get(usize::from(bytes[9]))?,
            flags: ConnectionFlags::from_bits(u16::from_be_bytes([bytes[10], bytes[11]]))?,
            request_bytes: u32_at(bytes, 12),
            head_bytes: u32_at(bytes, 16),
            body_bytes: u32_at(bytes, 20),
            batch: u32_at(bytes, 24),
            time_ms: u32_at(bytes, 28),
            warm_up_ms: u32_at(bytes, 32),
        })
    }

    /// Returns the hello as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = CONNECTION_JOBS.iter().position(|work| *work == self.job).unwrap_or(0) as u8;
        bytes[10..12].copy_from_slice(&self.flags.bits().to_be_bytes());
        let words = [
            self.request_bytes,
            self.head_bytes,
            self.body_bytes,
            self.batch,
            self.time_ms,
            self.warm_up_ms,
        ];
        write_words(&mut bytes, 12, &words);
        bytes
    }
}

/// Verdict of the far end on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionVerdict {
    /// Connection accepted.
    Accepted,
    /// Connection limit reached.
    ConnectionLimit,
    /// Connection limit of the client's address reached.
    AddressConnectionLimit,
    /// Requested time above the limit.
    TooLong,
    /// Message size above the limit.
    TooLarge,
    /// Invalid hello.
    InvalidHello,
    /// Hourly byte budget exhausted.
    BudgetExhausted,
}

const VERDICTS: [AdmissionVerdict; 7] = [
    AdmissionVerdict::Accepted,
    AdmissionVerdict::ConnectionLimit,
    AdmissionVerdict::AddressConnectionLimit,
    AdmissionVerdict::TooLong,
    AdmissionVerdict::TooLarge,
    AdmissionVerdict::InvalidHello,
    AdmissionVerdict::BudgetExhausted,
];

/// Response to a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpWelcome {
    /// Verdict on the connection.
    pub verdict: AdmissionVerdict,
    /// Bytes of facts that follow.
    pub facts_bytes: u16,
    /// Exceeded limit (connections, ms or bytes); for an exhausted budget, the time until there is
    /// more, in s.
    pub limit: u32,
}

impl TcpWelcome {
    /// Parses a welcome; `None` if it is invalid, of another version, or announces facts above
    /// [`FACTS_MAX`].
    #[must_use]
    pub fn parse(bytes: &[u8; WELCOME_LEN]) -> Option<Self> {
        let facts_bytes = u16::from_be_bytes([bytes[10], bytes[11]]);
        if bytes[..8] != MAGIC || bytes[8] != VERSION || usize::from(facts_bytes) > FACTS_MAX {
            return None;
        }
        let verdict = *VERDICTS.get(usize::from(bytes[9]))?;
        Some(Self { verdict, facts_bytes, limit: u32_at(bytes, 12) })
    }

    /// Returns the welcome as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; WELCOME_LEN] {
        let mut bytes = [0; WELCOME_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = VERDICTS.iter().position(|one| *one == self.verdict).unwrap_or(0) as u8;
        bytes[10..12].copy_from_slice(&self.facts_bytes.to_be_bytes());
        write_words(&mut bytes, 12, &[self.limit]);
        bytes
    }
}

/// Byte budget of the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteBudgetKind {
    /// Bytes of one connection.
    Connection,
    /// Bytes of all connections of the far end in an hour.
    Hour,
}

const BYTE_BUDGETS: [Option<ByteBudgetKind>; 3] =
    [None, Some(ByteBudgetKind::Connection), Some(ByteBudgetKind::Hour)];

/// Far end's report on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FarEndReport {
    /// Bytes received: of a stream after the warm-up, of exchanges in all requests.
    pub bytes: u64,
    /// Time from the end of the warm-up to the last byte of a received stream, in ns; 0 for other
    /// jobs.
    pub duration_ns: u64,
    /// Requests answered, or messages of a stream sent.
    pub exchanges: u64,
    /// Longest response time: from a complete request to the write of the reply, in ns.
    pub service_max_ns: u64,
    /// Samples of the data held back by the far end's socket while it waited.
    pub held_samples: HeldDataSampleCounts,
    /// State of its socket at the end.
    pub tcp: TcpInfoSummary,
    /// Byte budget that ended the connection, if one did.
    pub exhausted_budget: Option<ByteBudgetKind>,
    /// Size of the exhausted byte budget in bytes; 0 if none is.
    pub budget_bytes: u64,
}

impl FarEndReport {
    /// Parses a report; `None` if the bytes are no report.
    #[must_use]
    pub fn parse(bytes: &[u8; REPORT_LEN]) -> Option<Self> {
        if bytes[..8] != MAGIC || bytes[77..80] != [0; 3] {
            return None;
        }
        let u32_field = |at: usize| u64::from(u32_at(bytes, at));
        Some(Self {
            bytes: u64_at(bytes, 8),
            duration_ns: u64_at(bytes, 16),
            exchanges: u64_at(bytes, 24),
            service_max_ns: u64_at(bytes, 32),
            held_samples: HeldDataSampleCounts {
                nagle: u32_field(40),
                window: u32_field(44),
                cork: u32_field(48),
                delivered: u32_field(52),
            },
            tcp: TcpInfoSummary {
                cwnd: u32_field(56),
                mss_bytes: u32_field(60),
                rtt_ns: u32_field(64) * 1_000,
                retransmitted: u32_field(68),
                ato_ns: u32_field(72) * 1_000,
            },
            exhausted_budget: *BYTE_BUDGETS.get(usize::from(bytes[76]))?,
            budget_bytes: u64_at(bytes, 80),
        })
    }

    /// Returns the report as bytes. Values too large for their field are saturated.
    #[must_use]
    pub fn emit(&self) -> [u8; REPORT_LEN] {
        let mut bytes = [0; REPORT_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        let longs = [self.bytes, self.duration_ns, self.exchanges, self.service_max_ns];
        for (index, value) in longs.into_iter().enumerate() {
            bytes[8 + 8 * index..][..8].copy_from_slice(&value.to_be_bytes());
        }
        let (held, tcp) = (self.held_samples, self.tcp);
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
        write_words(&mut bytes, 40, &words.map(|value| u32::try_from(value).unwrap_or(u32::MAX)));
        bytes[76] =
            BYTE_BUDGETS.iter().position(|bound| *bound == self.exhausted_budget).unwrap_or(0)
                as u8;
        bytes[80..].copy_from_slice(&self.budget_bytes.to_be_bytes());
        bytes
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.copied().map_or(0, u32::from_be_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.copied().map_or(0, u64::from_be_bytes)
}

fn write_words(bytes: &mut [u8], at: usize, words: &[u32]) {
    let fields = bytes.get_mut(at..).unwrap_or_default().chunks_exact_mut(4);
    for (field, value) in fields.zip(words) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Returns the facts about a host as the text after a welcome: lines of the form `name=value`.
/// Lines that would exceed [`FACTS_MAX`] bytes in total are left out.
#[must_use]
pub fn format_facts(end: &PathEndFacts) -> Vec<u8> {
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
        let Some(value) = value.and_then(|value| displayable(&value)) else { continue };
        let line = format!("{name}={value}\n");
        if text.len() + line.len() <= FACTS_MAX {
            text.extend(line.bytes());
        }
    }
    text
}

/// Parses facts about a host; unknown names are skipped, control characters are removed.
#[must_use]
pub fn parse_facts(text: &[u8]) -> PathEndFacts {
    let text = String::from_utf8_lossy(text.get(..FACTS_MAX).unwrap_or(text));
    let mut end = PathEndFacts::default();
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let value = displayable(value);
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

/// Removes control characters from a fact and truncates it to [`FACT_CHARS_MAX`]; `None` if nothing
/// remains.
fn displayable(value: &str) -> Option<String> {
    let value: String = value.chars().filter(|c| !c.is_control()).take(FACT_CHARS_MAX).collect();
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
