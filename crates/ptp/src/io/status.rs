//! Status of the PTP ports for `horolog status`, which the thread of each port publishes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use horolog_io::PacketTimestampSource;
use horolog_source::NamedCounts;
use horolog_time::Span;
use horolog_wire::ptp::{MessageType, PortIdentity, PtpFlags};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::served::source_name;
use crate::clock_state::{PortState, PtpClockProperties, accuracy_bound};
use crate::foreign::ForeignMasterRecord;
use crate::port::ClockPortStatus;
use crate::refusal::PtpRefusal;
use crate::settings::{ClockSettings, PortSettings, PtpPortTransport, PtpProfile};

/// Status of the clock and its ports.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PtpStatus {
    /// Clock identity, as in `02005e.fffe.100001`.
    pub clock_identity: String,
    /// Profile name.
    pub profile: PtpProfile,
    /// Domain number.
    pub domain: u8,
    /// Status of the ports.
    pub ports: Vec<PtpPortStatus>,
}

/// Status of one port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PtpPortStatus {
    /// Port number.
    pub port: u16,
    /// Interface name.
    pub interface: String,
    /// Transport: `udp4`, `udp6` or `l2`.
    pub transport: PtpPortTransport,
    /// `listening`, `master`, `passive`, or `faulty` while the interface is down.
    pub state: PortState,
    /// Clock data that it announces; absent unless the port is a master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announces: Option<AnnouncedClock>,
    /// Better master, because of which the port does not send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub better: Option<ForeignMasterStatus>,
    /// Foreign masters known from their Announce messages.
    pub foreign_masters: Vec<ForeignMasterStatus>,
    /// Number of unicast grants held by clients.
    pub grants: usize,
    /// Total rate of the grants, in messages per second; a Sync counts twice because of its
    /// `Follow_Up`.
    pub granted_rate: f64,
    /// Messages received, by type.
    pub received: NamedCounts,
    /// Messages sent, by type.
    pub sent: NamedCounts,
    /// Refused messages, and refused requests in messages, by reason.
    pub refused: NamedCounts,
    /// Messages received or sent that have a hardware timestamp.
    pub hardware_timestamps: u64,
    /// Messages received or sent that have a kernel timestamp.
    pub kernel_timestamps: u64,
    /// Event messages ignored because they had no plausible receive time.
    pub without_timestamp: u64,
    /// Sent messages without a transmit time, so that no `Follow_Up` was sent: those sent just now,
    /// those that the kernel refused, and those whose timestamps were dropped.
    pub without_departure: u64,
    /// Messages that the kernel refused to send.
    pub send_errors: u64,
    /// Messages that the kernel dropped because a receive buffer was full.
    pub dropped: u64,
    /// Last error in the past 10 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Clock data announced by a port (IEEE 1588-2019, clause 13.5).
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the message")]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AnnouncedClock {
    /// Clock class (table 4).
    pub clock_class: u8,
    /// Clock accuracy code (table 5).
    pub clock_accuracy: u8,
    /// Error bound that the accuracy stands for, in nanoseconds; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_ns: Option<i64>,
    /// Name of the time source (table 6).
    pub time_source: Cow<'static, str>,
    /// True if the time is TAI; otherwise the timescale is arbitrary.
    pub ptp_timescale: bool,
    /// TAI minus UTC, in seconds; absent if not flagged as valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc_offset_s: Option<i16>,
    /// True if the time is traceable to a primary reference.
    pub time_traceable: bool,
    /// True if the frequency is traceable to a primary reference.
    pub frequency_traceable: bool,
    /// Leap second at the end of the current day: `none`, `leap61` or `leap59`.
    pub leap: Cow<'static, str>,
}

impl AnnouncedClock {
    fn from_clock_state(clock: &PtpClockProperties) -> Self {
        let leap = match clock.flags {
            flags if flags.contains(PtpFlags::LEAP_61) => "leap61",
            flags if flags.contains(PtpFlags::LEAP_59) => "leap59",
            _ => "none",
        };
        let is_valid = clock.flags.contains(PtpFlags::UTC_OFFSET_VALID);
        Self {
            clock_class: clock.clock_class,
            clock_accuracy: clock.accuracy,
            accuracy_ns: accuracy_bound(clock.accuracy).map(Span::as_ns),
            time_source: source_name(clock.time_source).into(),
            ptp_timescale: clock.flags.contains(PtpFlags::PTP_TIMESCALE),
            utc_offset_s: Some(clock.utc_offset).filter(|_| is_valid),
            time_traceable: clock.flags.contains(PtpFlags::TIME_TRACEABLE),
            frequency_traceable: clock.flags.contains(PtpFlags::FREQUENCY_TRACEABLE),
            leap: leap.into(),
        }
    }
}

/// Foreign master for the status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ForeignMasterStatus {
    /// Port that sends its Announce messages.
    pub port: String,
    /// Clock identity of its grandmaster.
    pub grandmaster: String,
    /// Priority1 of the grandmaster.
    pub priority1: u8,
    /// Clock class of the grandmaster.
    pub clock_class: u8,
    /// True if it qualifies as a master: two Announce messages arrived within the time window.
    pub qualified: bool,
}

/// Counts of timestamps of a port, by source.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PtpTimestampCounts {
    kernel: u64,
    hardware: u64,
    pub(super) missing: u64,
    /// Sent messages that were looped back with their transmit time.
    pub(super) departures: u64,
}

impl PtpTimestampCounts {
    pub(super) fn count(&mut self, by: PacketTimestampSource) {
        *by.choose(&mut self.kernel, &mut self.hardware) += 1;
    }
}

/// Data from which a port's thread publishes its status.
#[derive(Clone, Debug)]
pub(super) struct PtpPortStatusInputs {
    pub(super) interface: String,
    pub(super) settings: PortSettings,
    pub(super) view: ClockPortStatus,
    /// Properties of the clock when this was published.
    pub(super) clock: PtpClockProperties,
    pub(super) timestamp_counts: PtpTimestampCounts,
    /// Messages sent with a request for a transmit timestamp.
    pub(super) timestamps_requested: u64,
    pub(super) send_errors: u64,
    pub(super) dropped: u64,
}

/// Time for which an error is reported.
const ERROR_REPORT_DURATION: Duration = Duration::from_secs(10);

/// Status that a port's thread shares with other threads.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedPortStatus {
    port: Arc<ArcSwapOption<PtpPortStatusInputs>>,
    error: Arc<ArcSwapOption<(String, Instant)>>,
}

impl SharedPortStatus {
    pub(super) fn store_status(&self, status: PtpPortStatusInputs) {
        self.port.store(Some(Arc::new(status)));
    }

    pub(super) fn store_error(&self, error: &dyn std::fmt::Display) {
        self.error.store(Some(Arc::new((error.to_string(), Instant::now()))));
    }

    fn get(&self) -> Option<PtpPortStatus> {
        let status = self.port.load_full()?;
        Some(PtpPortStatus {
            error: self.error(Instant::now()),
            ..PtpPortStatus::from_status(&status)
        })
    }

    /// Returns the last error, if it is recent.
    fn error(&self, now: Instant) -> Option<String> {
        let noted = self.error.load_full()?;
        let (error, at) = &*noted;
        (now.saturating_duration_since(*at) < ERROR_REPORT_DURATION).then(|| error.clone())
    }
}

impl PtpStatus {
    pub(super) fn new(clock: &ClockSettings, ports: &[SharedPortStatus]) -> Self {
        Self {
            clock_identity: format_identity(clock.identity),
            profile: clock.profile,
            domain: clock.domain,
            ports: ports.iter().filter_map(SharedPortStatus::get).collect(),
        }
    }
}

impl PtpPortStatus {
    fn from_status(status: &PtpPortStatusInputs) -> Self {
        let PtpPortStatusInputs { settings, view, timestamp_counts, .. } = status;
        let by_type = |count: &dyn Fn(MessageType) -> u64| {
            MessageType::ALL.into_iter().map(|kind| (type_name(kind), count(kind))).collect()
        };
        let refused = PtpRefusal::ALL.map(|reason| (reason.name(), view.counts.refused(reason)));
        Self {
            port: settings.number,
            interface: status.interface.clone(),
            transport: settings.transport,
            state: view.state,
            announces: (view.state == PortState::Master)
                .then(|| AnnouncedClock::from_clock_state(&status.clock)),
            better: view.better_master.as_ref().map(ForeignMasterStatus::from_record),
            foreign_masters: view
                .foreign_masters
                .iter()
                .map(ForeignMasterStatus::from_record)
                .collect(),
            grants: view.grants,
            granted_rate: view.granted_rate,
            received: by_type(&|kind| view.counts.received(kind)),
            sent: by_type(&|kind| view.counts.sent(kind)),
            refused: refused.into_iter().collect(),
            hardware_timestamps: timestamp_counts.hardware,
            kernel_timestamps: timestamp_counts.kernel,
            without_timestamp: timestamp_counts.missing,
            without_departure: status
                .timestamps_requested
                .saturating_sub(timestamp_counts.departures),
            send_errors: status.send_errors,
            dropped: status.dropped,
            error: None,
        }
    }
}

impl ForeignMasterStatus {
    fn from_record(foreign: &ForeignMasterRecord) -> Self {
        let grandmaster = foreign.rank.grandmaster;
        Self {
            port: format_port(foreign.rank.sender),
            grandmaster: format_identity(grandmaster.identity),
            priority1: grandmaster.priority1,
            clock_class: grandmaster.clock_class,
            qualified: foreign.qualified,
        }
    }
}

/// Returns the name of a message type in counters.
const fn type_name(kind: MessageType) -> &'static str {
    match kind {
        MessageType::Sync => "sync",
        MessageType::DelayReq => "delay_req",
        MessageType::PdelayReq => "pdelay_req",
        MessageType::PdelayResp => "pdelay_resp",
        MessageType::FollowUp => "follow_up",
        MessageType::DelayResp => "delay_resp",
        MessageType::PdelayRespFollowUp => "pdelay_resp_follow_up",
        MessageType::Announce => "announce",
        MessageType::Signaling => "signaling",
        MessageType::Management => "management",
    }
}

/// Formats a clock identity in the form that other PTP programs use.
fn format_identity(clock: u64) -> String {
    format!("{:06x}.{:04x}.{:06x}", clock >> 40, (clock >> 24) & 0xffff, clock & 0xff_ffff)
}

fn format_port(port: PortIdentity) -> String {
    format!("{}-{}", format_identity(port.clock), port.port)
}

/// Serialises an enum as its name; a variant that the list omits is a compile error.
macro_rules! serialise_by_name {
    ($type:ident, $($variant:ident),+) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant)|+ => serializer.serialize_str(self.name()),
                }
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = String::deserialize(deserializer)?;
                let found = [$(Self::$variant),+].into_iter().find(|value| value.name() == name);
                found.ok_or_else(|| D::Error::custom(format!("unknown name '{name}'")))
            }
        }
    };
}

serialise_by_name!(PortState, Faulty, Listening, Master, Passive);
serialise_by_name!(PtpPortTransport, Udp4, Udp6, Ethernet);
serialise_by_name!(PtpProfile, DefaultE2e, DefaultP2p, G8275_2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_does_not_recur_is_no_longer_reported() {
        let status = SharedPortStatus::default();
        assert_eq!(status.error(Instant::now()), None);
        status.store_error(&"the network is down");
        assert_eq!(status.error(Instant::now()).as_deref(), Some("the network is down"));
        assert_eq!(status.error(Instant::now() + ERROR_REPORT_DURATION), None);
    }

    #[test]
    fn identities_are_written_as_others_do() {
        let port_identity = PortIdentity { clock: 0x0200_5eff_fe10_0001, port: 3 };
        assert_eq!(format_port(port_identity), "02005e.fffe.100001-3");
    }
}
