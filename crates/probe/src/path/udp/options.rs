//! Options of a UDP path run.

use std::time::Duration;

use horolog_io::target::{AddressFamily, TargetName};
use horolog_wire::{path_probe::short, stamp};

/// Maximum UDP payload over IPv4 in bytes: 65,535 less both headers.
pub const LENGTH_MAX: u64 = 65_507;
/// Maximum number of parallel flows.
pub const FLOWS_MAX: u64 = 64;
/// Default timeout of a reply.
pub const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Default number of warm-up requests.
pub const WARM_UP: u64 = 100;
/// Maximum duration of a row's warm-up.
pub(super) const WARM_UP_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum number of requests of a row; sequence numbers have 32 bits.
pub(super) const COUNT_MAX: u64 = 1 << 31;

/// Addressing of load datagrams: unicast or broadcast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadAddressingMode {
    /// The far end alone.
    Unicast,
    /// All hosts of the link.
    Broadcast,
}

/// Planned row of a UDP measurement: datagram length and load ratio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct UdpRowPlan {
    /// Payload of a request in bytes.
    pub length: u64,
    /// Load datagrams per request.
    pub load_ratio: f64,
}

const fn row(length: u64, load_ratio: f64) -> UdpRowPlan {
    UdpRowPlan { length, load_ratio }
}

/// Rows of Table 4 of Hao, Xue and Qin, "Performance and test method for real-time parallel
/// system", in its order.
pub const TABLE_4: [UdpRowPlan; 8] = [
    row(1_000, 0.0),
    row(2_000, 0.0),
    row(3_000, 50.0),
    row(4_000, 50.0),
    row(5_000, 100.0),
    row(3_000, 100.0),
    row(2_000, 50.0),
    row(1_000, 100.0),
];

/// Options of a UDP path run.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct PathUdpOptions {
    /// Far end to measure against.
    pub target: TargetName,
    /// IP version, if the name has addresses of both.
    pub family: Option<AddressFamily>,
    /// Interface to send on; `None` follows the route.
    pub interface: Option<String>,
    /// True if the far end is a STAMP reflector.
    pub is_stamp: bool,
    /// Confirmation that a public STAMP reflector belongs to the user.
    pub i_own_this_target: bool,
    /// Rows to measure, in order.
    pub rows: Vec<UdpRowPlan>,
    /// Duration of a row.
    pub time: Duration,
    /// Number of requests of a row in all flows together, which ends the row; `None` if `time` ends
    /// it.
    pub count: Option<u64>,
    /// Requests per second in all flows together; `None` selects ping-pong.
    pub rate: Option<f64>,
    /// Number of warm-up requests of each flow, which are not counted; sent for at most one second.
    pub warm_up: u64,
    /// Timeout of a reply.
    pub timeout: Duration,
    /// Number of parallel flows.
    pub flows: u64,
    /// Destination of load; `None` selects broadcast if the far end is at a non-public address on
    /// the same link, else unicast.
    pub load_destination: Option<LoadAddressingMode>,
    /// Payload of a load datagram in bytes.
    pub load_length: u64,
    /// DSCP of requests, 0 to 63.
    pub dscp: u8,
    /// True to busy-poll for replies instead of sleeping.
    pub busy_polling: bool,
    /// True to use kernel timestamps at both ends.
    pub kernel_timestamps: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
}

impl PathUdpOptions {
    /// Returns the default options for a target: ping-pong in one flow for one second per row, as
    /// yet without rows.
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
            timeout: REPLY_TIMEOUT,
            flows: 1,
            load_destination: None,
            load_length: 2_000,
            dscp: 0,
            busy_polling: false,
            kernel_timestamps: false,
            command: Vec::new(),
        }
    }

    /// Returns the number of warm-up requests of each flow; at a fixed rate at most those of
    /// [`WARM_UP_TIME_MAX`].
    pub(super) fn warm_up_within_time(&self) -> u64 {
        let sent = |rate: f64| rate / self.flows as f64 * WARM_UP_TIME_MAX.as_secs_f64();
        self.rate.map_or(self.warm_up, |rate| self.warm_up.min(sent(rate) as u64))
    }

    /// Returns the minimum datagram length of a request, in bytes.
    #[must_use]
    pub const fn length_min(&self) -> u64 {
        let length = if self.is_stamp { stamp::PACKET_LEN } else { short::LEN };
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
