//! Status of a server, as its status socket and `horolog status` report it: the type that is
//! serialised, parsed and shown, and the sums over both engines.

use std::borrow::Cow;
use std::net::SocketAddr;

use horolog_ptp::PtpStatus;
use horolog_source::{CalibrationStatus, SelectionState, SourceStatus};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::confine::ConfinementStatus;
use super::reload::ReloadStatus;
use crate::clock::thread::ClockThreadStatus;
use crate::config::SocketSharingMode;
use crate::nts::nts_ke::NtsKeStatus;
use crate::sockets::counters::SocketEngineCounts;
use crate::sockets::listeners::WorkerStatus;
use crate::xdp::counts::{XdpCounts, XdpInterfaceStatus};

/// Name and version of the JSON format.
pub(crate) const SCHEMA: &str = "horolog.status/2";

/// Status of a server: the JSON object of `horolog status`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Name and version of the JSON format.
    pub schema: Cow<'static, str>,
    /// Process identifier.
    pub pid: u32,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// Listen addresses of UTC with stepped leap seconds.
    pub listen: Vec<SocketAddr>,
    /// Listen addresses of smeared time.
    pub smear_listen: Vec<SocketAddr>,
    /// Engines that answer: `socket`, or `xdp` if XDP and sockets do.
    pub engine: Cow<'static, str>,
    /// Reason for which XDP, although requested, does not answer at all or on some interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_unavailable: Option<String>,
    /// Interfaces on which XDP answers.
    pub xdp_interfaces: Vec<XdpInterfaceStatus>,
    /// Number of threads per listen address.
    pub threads: usize,
    /// Distribution of work among the threads.
    pub dispatch: SocketSharingMode,
    /// Leap indicator: 0 none, 1 insert, 2 delete, 3 unsynchronised.
    pub leap: u8,
    /// Stratum; 16 if unsynchronised, for which replies carry 0.
    pub stratum: u8,
    /// Precision of the clock, in log2 seconds.
    pub precision: i8,
    /// Reference identifier as carried in a packet.
    pub reference_id: [u8; 4],
    /// Root delay, in nanoseconds.
    pub root_delay_ns: i64,
    /// Root dispersion, in nanoseconds.
    pub root_dispersion_ns: i64,
    /// TAI minus UTC, in seconds; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tai_minus_utc_s: Option<i16>,
    /// Next leap second of the list: insertion or deletion, and the day at whose end it occurs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_leap: Option<String>,
    /// Deliberate offset of the served time from the system clock, in nanoseconds.
    pub test_offset_ns: i64,
    /// Deliberate drift of the served time, in parts per billion.
    pub test_drift_ppb: i64,
    /// Time sources, with the state of each.
    pub sources: Vec<SourceStatus>,
    /// Calibration of the system clock by a receiver, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<CalibrationStatus>,
    /// True if the clock page is valid and synchronised, so that time is served.
    pub synchronised: bool,
    /// Age of the clock page, in nanoseconds.
    pub page_age_ns: i64,
    /// True if the clock page has expired, so that no request is answered.
    pub page_expired: bool,
    /// Page updates, and steps of the system clock.
    pub clock: ClockThreadStatus,
    /// Confinement in force, and requested parts that are missing.
    pub sandbox: ConfinementStatus,
    /// Counts and last error of the reloads.
    pub reload: ReloadStatus,
    /// Counts of the socket engine.
    pub counters: SocketEngineCounts,
    /// PTP grandmaster, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptp: Option<PtpStatus>,
    /// NTS-KE listener, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nts_ke: Option<NtsKeStatus>,
    /// Counts of each thread of the socket engine.
    pub workers: Vec<WorkerStatus>,
    /// NTP requests answered by the XDP engine, indexed by core number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_answered_by_core: Option<Vec<u64>>,
    /// Counts of the XDP engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_counters: Option<XdpCounts>,
    /// Number of stored clients; absent if they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<StoredClientCounts>,
    /// Resident memory of the process, in bytes; null if the system does not report it.
    pub resident_bytes: Option<u64>,
}

/// Numbers of stored clients, including those that have long been idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoredClientCounts {
    /// Clients stored for interleaved mode by the socket threads.
    pub interleaved: u64,
    /// Clients stored for rate limits by the socket threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<u64>,
    /// Clients stored for rate limits by XDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by_xdp: Option<u64>,
}

/// Reason for which a text is not a status that this version reads.
#[derive(Debug, thiserror::Error)]
pub enum StatusFormatError {
    /// Status of another version.
    #[error(
        "its schema is '{0}', and this program reads '{SCHEMA}'; use the horolog of the \
             server's version"
    )]
    Schema(String),
    /// Text that is not JSON, or lacks a field.
    #[error(
        "{0}; use the horolog of the server's version, or another socket with \
             --status-socket"
    )]
    Json(#[from] serde_json::Error),
}

impl ServerStatus {
    /// Parses the JSON of a status of the same schema; unknown fields are ignored.
    pub fn parse(text: &str) -> Result<Self, StatusFormatError> {
        #[derive(Deserialize)]
        struct StatusHeader {
            schema: String,
        }
        let StatusHeader { schema } = serde_json::from_str(text)?;
        if schema != SCHEMA {
            return Err(StatusFormatError::Schema(schema));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Returns the status as a JSON value.
    #[must_use]
    pub fn to_json(&self) -> Value {
        // Numbers, texts and lists of them under string keys always serialise.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the number of NTP requests that XDP answered, including kisses; 0 without XDP.
    #[must_use]
    pub fn answered_by_xdp(&self) -> u64 {
        self.xdp_counters.map_or(0, |counts| counts.answered())
    }

    /// Returns the number of requests that rate limits and prefix lists of XDP dropped; 0 without
    /// XDP.
    fn dropped_by_xdp(&self) -> u64 {
        self.xdp_counters.map_or(0, |counts| counts.dropped.total())
    }

    /// Returns the number of requests that both engines received: the sum of those answered,
    /// limited and ignored. Frames that XDP passes or redirects count only at the sockets.
    #[must_use]
    pub fn requests_received(&self) -> u64 {
        self.counters.received + self.answered_by_xdp() + self.dropped_by_xdp()
    }

    /// Returns the number of requests that both engines answered.
    #[must_use]
    pub fn requests_answered(&self) -> u64 {
        self.counters.answered + self.answered_by_xdp()
    }

    /// Returns the number of requests that rate limits and prefix lists of both engines dropped
    /// without a kiss.
    #[must_use]
    pub fn requests_limited(&self) -> u64 {
        self.counters.ignored.limited() + self.dropped_by_xdp()
    }

    /// Returns the number of requests that the socket engine did not answer for a reason other than
    /// rate limits and prefix lists: ignored, expired, or refused by the kernel.
    #[must_use]
    pub fn requests_ignored(&self) -> u64 {
        let SocketEngineCounts { ignored, expired, refused, .. } = self.counters;
        ignored.total().saturating_sub(ignored.limited()) + expired + refused
    }

    /// Returns the source whose time is served; `None` if none is selected.
    #[must_use]
    pub fn selected_source(&self) -> Option<&SourceStatus> {
        self.sources.iter().find(|source| source.state == SelectionState::Selected)
    }
}

impl StoredClientCounts {
    /// Returns each number that is present, with its name in the status.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { interleaved, limited, limited_by_xdp } = *self;
        let numbers = [
            ("interleaved", Some(interleaved)),
            ("limited", limited),
            ("limited_by_xdp", limited_by_xdp),
        ];
        numbers.into_iter().filter_map(|(name, number)| Some((name, number?)))
    }
}

impl Serialize for SocketSharingMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for SocketSharingMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = [Self::PerThread, Self::SharedLock].into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| D::Error::custom(format!("unknown name '{name}'")))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Status with every field.
    const SAMPLE: &str = include_str!("../../samples/status.json");

    pub(crate) fn sample() -> ServerStatus {
        ServerStatus::parse(SAMPLE).unwrap()
    }

    #[test]
    fn status_is_read_as_it_is_written() {
        let json: Value = serde_json::from_str(SAMPLE).unwrap();
        assert_eq!(sample().to_json(), json);
    }

    #[test]
    fn status_of_another_schema_is_refused_and_unknown_fields_are_not() {
        let mut json = sample().to_json();
        json["counters"]["later"] = 1.into();
        assert_eq!(ServerStatus::parse(&json.to_string()).unwrap(), sample());
        json["schema"] = "horolog.status/3".into();
        let error = ServerStatus::parse(&json.to_string()).unwrap_err().to_string();
        assert!(error.contains("status/3") && error.contains("status/2"), "{error}");
    }

    #[test]
    fn requests_of_both_engines_add_up() {
        let status = sample();
        let (answered, limited) = (status.requests_answered(), status.requests_limited());
        assert_eq!((answered, limited, status.requests_ignored()), (160, 24, 5));
        assert_eq!(status.requests_received(), 160 + 24 + 5);
    }
}
