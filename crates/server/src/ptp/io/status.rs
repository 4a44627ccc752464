//! What the ports do, as `horolog status` tells it; each thread leaves it where others can read it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use horolog_time::Span;
use horolog_wire::ptp::{Flags, MessageType, PortIdentity};
use serde::Serialize;

use super::served::source_name;
use crate::hardware::By;
use crate::ptp::clock_state::accuracy_bound;
use crate::ptp::{ClockSettings, ClockState, Foreign, PortSettings, PortState, PortView, Refusal};

/// The clock and its ports.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PtpStatus {
    /// The clock's identity, as in `02005e.fffe.100001`.
    pub clock_identity: String,
    /// The profile.
    pub profile: &'static str,
    /// The domain.
    pub domain: u8,
    /// The ports.
    pub ports: Vec<PtpPortStatus>,
}

/// One port.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct PtpPortStatus {
    /// Its number.
    pub port: u16,
    /// Its interface.
    pub interface: String,
    /// What it speaks over: `udp4`, `udp6` or `l2`.
    pub transport: &'static str,
    /// `listening`, `master`, `passive`, or `faulty` while the interface is down.
    pub state: &'static str,
    /// What it announces of the clock; absent while it is no master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announces: Option<Announced>,
    /// The better master that it yields to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub better: Option<ForeignMaster>,
    /// The masters that it hears.
    pub foreign_masters: Vec<ForeignMaster>,
    /// Grants of unicast streams that are held.
    pub grants: usize,
    /// Messages a second that they add up to.
    pub granted_rate: f64,
    /// Messages received, by type.
    pub received: BTreeMap<&'static str, u64>,
    /// Messages sent, by type.
    pub sent: BTreeMap<&'static str, u64>,
    /// Messages refused, and requests in them, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Messages received and sent whose timestamp the card took.
    pub hardware_stamps: u64,
    /// Messages received and sent whose timestamp the kernel took.
    pub kernel_stamps: u64,
    /// Messages received without a time of arrival that can be believed, which were passed over.
    pub without_stamp: u64,
    /// Messages of which nobody has told yet when they left, so that no `Follow_Up` tells of them:
    /// the last ones, those that were refused, and those whose timestamps found no room.
    pub without_departure: u64,
    /// Messages that the kernel would not send.
    pub send_errors: u64,
    /// Messages that the kernel dropped because the thread was late.
    pub dropped: u64,
    /// The last error, for 10 s: what lasts is noted again and again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a master announces of its clock (IEEE 1588-2019, clause 13.5).
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the message")]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Announced {
    /// The clock class (table 4).
    pub clock_class: u8,
    /// The clock accuracy (table 5).
    pub clock_accuracy: u8,
    /// The bound that the accuracy stands for, in nanoseconds; absent where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_ns: Option<i64>,
    /// Where the time is from (table 6).
    pub time_source: &'static str,
    /// Whether the time is TAI; otherwise the scale is arbitrary.
    pub ptp_timescale: bool,
    /// TAI minus UTC, in seconds; absent where it is not said to be valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc_offset_s: Option<i16>,
    /// Whether the time can be traced to a primary reference.
    pub time_traceable: bool,
    /// Whether the frequency can.
    pub frequency_traceable: bool,
    /// The leap second at the end of this day: `none`, `leap61` or `leap59`.
    pub leap: &'static str,
}

impl Announced {
    fn of(clock: &ClockState) -> Self {
        let leap = match clock.flags {
            flags if flags.has(Flags::LEAP_61) => "leap61",
            flags if flags.has(Flags::LEAP_59) => "leap59",
            _ => "none",
        };
        let is_valid = clock.flags.has(Flags::UTC_OFFSET_VALID);
        Self {
            clock_class: clock.clock_class,
            clock_accuracy: clock.accuracy,
            accuracy_ns: accuracy_bound(clock.accuracy).map(Span::as_ns),
            time_source: source_name(clock.time_source),
            ptp_timescale: clock.flags.has(Flags::PTP_TIMESCALE),
            utc_offset_s: Some(clock.utc_offset).filter(|_| is_valid),
            time_traceable: clock.flags.has(Flags::TIME_TRACEABLE),
            frequency_traceable: clock.flags.has(Flags::FREQUENCY_TRACEABLE),
            leap,
        }
    }
}

/// Another master.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ForeignMaster {
    /// The port that announces.
    pub port: String,
    /// Its grandmaster.
    pub grandmaster: String,
    /// The grandmaster's first rank.
    pub priority1: u8,
    /// The grandmaster's class.
    pub clock_class: u8,
    /// Whether it was heard often enough to count.
    pub qualified: bool,
}

/// Whose clocks took timestamps.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Stamps {
    kernel: u64,
    hardware: u64,
    pub(super) missing: u64,
    /// Of messages sent, how many came back with the time when they left.
    pub(super) departures: u64,
}

impl Stamps {
    pub(super) fn count(&mut self, by: By) {
        *by.choose(&mut self.kernel, &mut self.hardware) += 1;
    }
}

/// What the thread of a port tells.
#[derive(Clone, Debug)]
pub(super) struct PortStatus {
    pub(super) interface: String,
    pub(super) settings: PortSettings,
    pub(super) view: PortView,
    /// The clock as it told of it then.
    pub(super) clock: ClockState,
    pub(super) stamps: Stamps,
    /// How many messages were to come back with the time when they left.
    pub(super) awaited: u64,
    pub(super) send_errors: u64,
    pub(super) dropped: u64,
}

/// How long an error is told that does not come again.
const ERROR_LASTS: Duration = Duration::from_secs(10);

/// Where it tells it.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedStatus {
    port: Arc<ArcSwapOption<PortStatus>>,
    error: Arc<ArcSwapOption<(String, Instant)>>,
}

impl SharedStatus {
    pub(super) fn put(&self, status: PortStatus) {
        self.port.store(Some(Arc::new(status)));
    }

    pub(super) fn note_error(&self, error: &dyn std::fmt::Display) {
        self.error.store(Some(Arc::new((error.to_string(), Instant::now()))));
    }

    fn get(&self) -> Option<PtpPortStatus> {
        let status = self.port.load_full()?;
        Some(PtpPortStatus { error: self.error(Instant::now()), ..PtpPortStatus::of(&status) })
    }

    /// The last error, while it is news.
    fn error(&self, now: Instant) -> Option<String> {
        let noted = self.error.load_full()?;
        let (error, at) = &*noted;
        (now.saturating_duration_since(*at) < ERROR_LASTS).then(|| error.clone())
    }
}

impl PtpStatus {
    pub(super) fn new(clock: &ClockSettings, ports: &[SharedStatus]) -> Self {
        Self {
            clock_identity: identity(clock.identity),
            profile: clock.profile.name(),
            domain: clock.domain,
            ports: ports.iter().filter_map(SharedStatus::get).collect(),
        }
    }
}

impl PtpPortStatus {
    fn of(status: &PortStatus) -> Self {
        let PortStatus { settings, view, stamps, .. } = status;
        let by_type = |count: &dyn Fn(MessageType) -> u64| {
            let counts = MessageType::ALL.map(|kind| (name(kind), count(kind)));
            counts.into_iter().filter(|(_, count)| *count > 0).collect()
        };
        let refused = Refusal::ALL.map(|reason| (reason.name(), view.counts.refused(reason)));
        Self {
            port: settings.number,
            interface: status.interface.clone(),
            transport: settings.transport.name(),
            state: view.state.name(),
            announces: (view.state == PortState::Master).then(|| Announced::of(&status.clock)),
            better: view.better.as_ref().map(ForeignMaster::of),
            foreign_masters: view.foreign.iter().map(ForeignMaster::of).collect(),
            grants: view.grants,
            granted_rate: view.granted_rate,
            received: by_type(&|kind| view.counts.received(kind)),
            sent: by_type(&|kind| view.counts.sent(kind)),
            refused: refused.into_iter().filter(|(_, count)| *count > 0).collect(),
            hardware_stamps: stamps.hardware,
            kernel_stamps: stamps.kernel,
            without_stamp: stamps.missing,
            without_departure: status.awaited.saturating_sub(stamps.departures),
            send_errors: status.send_errors,
            dropped: status.dropped,
            error: None,
        }
    }
}

impl ForeignMaster {
    fn of(foreign: &Foreign) -> Self {
        let grandmaster = foreign.rank.grandmaster;
        Self {
            port: port(foreign.rank.sender),
            grandmaster: identity(grandmaster.identity),
            priority1: grandmaster.priority1,
            clock_class: grandmaster.clock_class,
            qualified: foreign.qualified,
        }
    }
}

/// A type of messages in the way of counters.
const fn name(kind: MessageType) -> &'static str {
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

/// A clock's identity in the way of other PTP programs.
fn identity(clock: u64) -> String {
    format!("{:06x}.{:04x}.{:06x}", clock >> 40, (clock >> 24) & 0xffff, clock & 0xff_ffff)
}

fn port(port: PortIdentity) -> String {
    format!("{}-{}", identity(port.clock), port.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_does_not_come_again_is_told_no_longer() {
        let status = SharedStatus::default();
        assert_eq!(status.error(Instant::now()), None);
        status.note_error(&"the network is down");
        assert_eq!(status.error(Instant::now()).as_deref(), Some("the network is down"));
        assert_eq!(status.error(Instant::now() + ERROR_LASTS), None);
    }

    #[test]
    fn identities_are_written_as_others_do() {
        let port_identity = PortIdentity { clock: 0x0200_5eff_fe10_0001, port: 3 };
        assert_eq!(port(port_identity), "02005e.fffe.100001-3");
    }
}
