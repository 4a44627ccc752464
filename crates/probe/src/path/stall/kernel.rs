//! Kernel settings that affect delayed acknowledgements and congestion windows, from `/proc`,
//! netlink and socket options. Nothing is set; an unreadable value is absent.

use std::fs;
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use horolog_record::StallKernelSettings;
use horolog_sys::netlink::Netlink;
use horolog_sys::tcp;

use super::judge::saturating_ns;

/// Divisor of HZ that yields `TCP_DELACK_MIN` (net/tcp.h), the minimum delay of an acknowledgement
/// in ticks.
const DELAYED_ACK_DIVISOR: u64 = 25;

/// Reads the settings, including those of a connection and of the route to `target` if given.
pub(super) fn read_kernel_settings(
    stream: Option<&TcpStream>,
    target: Option<IpAddr>,
) -> StallKernelSettings {
    let tick = tcp::timer_interval().ok();
    let hz = tick.map(tick_rate);
    let route = target.and_then(|target| Netlink::open().ok()?.route_metrics(target).ok());
    let route = route.unwrap_or_default();
    StallKernelSettings {
        hz,
        delayed_ack_min_ns: tick
            .zip(hz)
            .map(|(tick, hz)| saturating_ns(tick) * (hz / DELAYED_ACK_DIVISOR)),
        tcp_delack_min: read_sysctl("tcp_delack_min"),
        delayed_ack_max_ns: stream.and_then(tcp::delayed_ack_max).map(saturating_ns),
        slow_start_after_idle: read_sysctl("tcp_slow_start_after_idle").map(|value| value != 0),
        pingpong_thresh: read_sysctl("tcp_pingpong_thresh"),
        autocorking: read_sysctl("tcp_autocorking").map(|value| value != 0),
        route_rto_min_ns: route.rto_min.map(saturating_ns),
        route_quick_ack: route.quick_ack,
        route_initial_cwnd: route.initial_cwnd.map(u64::from),
    }
}

/// Returns HZ for a tick of this length.
fn tick_rate(tick: Duration) -> u64 {
    (1.0 / tick.as_secs_f64().max(1e-9)).round() as u64
}

/// Reads a numeric setting `net.ipv4.NAME` of this network namespace.
fn read_sysctl(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_delay_is_a_twenty_fifth_of_a_second_in_ticks() {
        let kernel = read_kernel_settings(None, None);
        let (hz, min_ns) = (kernel.hz.unwrap(), kernel.delayed_ack_min_ns.unwrap());
        assert!((30_000_000..=42_000_000).contains(&min_ns), "{hz}: {min_ns}");
        assert!(kernel.slow_start_after_idle.is_some());
        assert_eq!(read_sysctl("no_such_setting"), None);
    }
}
