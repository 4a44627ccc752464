//! Kernel settings of acknowledgements and windows, read from `/proc` and `/sys`. Nothing is set; a
//! missing value is absent.

use std::fs;
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use horolog_record::StallKernelSettings;
use horolog_sys::netlink::Netlink;
use horolog_sys::tcp;

use super::judge::ns;

/// Fraction of a second: the least time for which the kernel delays an acknowledgement
/// (`TCP_DELACK_MIN` in net/tcp.h: HZ/25 ticks).
const DELAYED_ACKS_IN_SECOND: u64 = 25;

/// Reads the settings, with those of a connection and of the route to `target` if given.
pub(super) fn read(stream: Option<&TcpStream>, target: Option<IpAddr>) -> StallKernelSettings {
    let tick = tcp::timer_interval().ok();
    let hz = tick.map(hz);
    let route = target.and_then(|target| Netlink::open().ok()?.route_metrics(target).ok());
    let route = route.unwrap_or_default();
    StallKernelSettings {
        hz,
        delayed_ack_min_ns: tick.zip(hz).map(|(tick, hz)| ns(tick) * (hz / DELAYED_ACKS_IN_SECOND)),
        tcp_delack_min: number("tcp_delack_min"),
        delayed_ack_max_ns: stream.and_then(tcp::delayed_ack_max).map(ns),
        slow_start_after_idle: number("tcp_slow_start_after_idle").map(|value| value != 0),
        pingpong_thresh: number("tcp_pingpong_thresh"),
        autocorking: number("tcp_autocorking").map(|value| value != 0),
        route_rto_min_ns: route.rto_min.map(ns),
        route_quick_ack: route.quick_ack,
        route_initial_cwnd: route.initial_cwnd.map(u64::from),
    }
}

/// Returns the timer interrupts per second.
fn hz(tick: Duration) -> u64 {
    (1.0 / tick.as_secs_f64().max(1e-9)).round() as u64
}

/// Reads a setting of the network namespace of the calling thread.
fn number(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_delay_is_a_twenty_fifth_of_a_second_in_ticks() {
        let kernel = read(None, None);
        let (hz, min_ns) = (kernel.hz.unwrap(), kernel.delayed_ack_min_ns.unwrap());
        assert!((30_000_000..=42_000_000).contains(&min_ns), "{hz}: {min_ns}");
        assert!(kernel.slow_start_after_idle.is_some());
        assert_eq!(number("no_such_setting"), None);
    }
}
