//! What a run over a path is asked to do.

use std::time::Duration;

use horolog_io::target::{Family, TargetName};
use horolog_wire::{path_probe, stamp};

/// The longest datagram over IPv4, in bytes of payload: 65,535 less both headers.
pub const LENGTH_MAX: u64 = 65_507;
/// Flows at a time.
pub const FLOWS_MAX: u64 = 64;
/// How long a reply may take unless told otherwise.
pub const TIMEOUT: Duration = Duration::from_millis(500);
/// Requests that warm up, unless told otherwise.
pub const WARM_UP: u64 = 100;
/// How long a row warms up at most, however many requests it has sent by then.
pub(super) const WARM_UP_TIME: Duration = Duration::from_secs(1);
/// Requests of a row, at most: numbers have 32 bits.
pub(super) const COUNT_MAX: u64 = 1 << 31;

/// Where datagrams of load go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadKind {
    /// To the far end.
    Unicast,
    /// To all hosts of the link.
    Broadcast,
}

/// One row: a length under a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RowPlan {
    /// Bytes of payload of a valid datagram.
    pub length: u64,
    /// Datagrams of load for each valid one.
    pub load_ratio: f64,
}

const fn row(length: u64, load_ratio: f64) -> RowPlan {
    RowPlan { length, load_ratio }
}

/// The rows of Table 4 of Hao, Xue and Qin, "Performance and test method for real-time parallel
/// system", in its order.
pub const TABLE_4: [RowPlan; 8] = [
    row(1_000, 0.0),
    row(2_000, 0.0),
    row(3_000, 50.0),
    row(4_000, 50.0),
    row(5_000, 100.0),
    row(3_000, 100.0),
    row(2_000, 50.0),
    row(1_000, 100.0),
];

/// What to measure, and how.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct PathUdpOptions {
    /// The far end.
    pub target: TargetName,
    /// The version of IP, where the name has both.
    pub family: Option<Family>,
    /// Interface to ask by; where the route leads otherwise.
    pub interface: Option<String>,
    /// Whether the far end is a reflector of STAMP.
    pub is_stamp: bool,
    /// A public reflector of STAMP may be asked.
    pub i_own_this_target: bool,
    /// The rows.
    pub rows: Vec<RowPlan>,
    /// How long a row takes.
    pub time: Duration,
    /// Requests of a row in all flows together, where that is to end it.
    pub count: Option<u64>,
    /// Requests in a second in all flows together; ping-pong without.
    pub rate: Option<f64>,
    /// Requests of each flow that are sent first and not counted, for a second at most.
    pub warm_up: u64,
    /// How long a reply may take.
    pub timeout: Duration,
    /// Flows side by side.
    pub flows: u64,
    /// Where load goes; to all of the link where the far end is on it, unless told.
    pub load_kind: Option<LoadKind>,
    /// Bytes of payload of a datagram of load.
    pub load_length: u64,
    /// The DSCP of requests, 0 to 63.
    pub dscp: u8,
    /// Whether to look for replies all the time, instead of sleeping.
    pub busy_polling: bool,
    /// Whether the kernels of both ends are to take timestamps.
    pub kernel_timestamps: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl PathUdpOptions {
    /// The usual options for a target: one row of 64 bytes.
    #[must_use]
    pub const fn new(target: TargetName) -> Self {
        Self {
            target,
            family: None,
            interface: None,
            is_stamp: false,
            i_own_this_target: false,
            rows: Vec::new(),
            time: Duration::from_secs(1),
            count: None,
            rate: None,
            warm_up: WARM_UP,
            timeout: TIMEOUT,
            flows: 1,
            load_kind: None,
            load_length: 2_000,
            dscp: 0,
            busy_polling: false,
            kernel_timestamps: false,
            command: Vec::new(),
        }
    }

    /// The requests of each flow that warm up: at a fixed rate as many as are sent in
    /// [`WARM_UP_TIME`] at most.
    pub(super) fn warm_up_within_time(&self) -> u64 {
        let sent = |rate: f64| rate / self.flows as f64 * WARM_UP_TIME.as_secs_f64();
        self.rate.map_or(self.warm_up, |rate| self.warm_up.min(sent(rate) as u64))
    }

    /// The shortest datagram that holds what a request has to tell.
    #[must_use]
    pub const fn length_min(&self) -> u64 {
        let length = if self.is_stamp { stamp::PACKET_LEN } else { path_probe::HEADER_LEN };
        length as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_warms_up_for_a_second_at_most() {
        let usual = PathUdpOptions::new("192.0.2.1".parse().unwrap());
        let of =
            |rate, flows| PathUdpOptions { rate, flows, ..usual.clone() }.warm_up_within_time();
        assert_eq!(of(None, 1), WARM_UP);
        assert_eq!((of(Some(1e6), 8), of(Some(10.0), 1), of(Some(10.0), 4)), (WARM_UP, 10, 2));
        assert_eq!((of(Some(1.0), 1), of(Some(1.0), 2)), (1, 0));
    }
}
