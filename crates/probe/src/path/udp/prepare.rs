//! What happens before the first row: the options are checked, the far end is asked who it is, and
//! what this host knows of its own clock is told.

use std::net::SocketAddr;
use std::time::Duration;

use horolog_sys::adjtimex::kernel_clock;
use horolog_time::Span;
use horolog_wire::stamp::{ErrorEstimate, SENDER_HOP_LIMIT};

use super::codec::Codec;
use super::error::PathError;
use super::flow::connected;
use super::hello::{hello, number, reflected};
use super::options::{COUNT_MAX, FLOWS_MAX, LENGTH_MAX, PathUdpOptions};

/// A far end that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) same_clock: bool,
    pub(super) clock_error_ns: Option<u64>,
    pub(super) mtu: u32,
}

/// STAMP without a session that was agreed upon: its identifier is drawn, and never zero.
pub(super) fn stamp_codec() -> Codec {
    let clock = kernel_clock().ok();
    let error = clock.map_or(Span::from_ms(16_000), |clock| clock.maximum_error);
    let synchronised = clock.is_some_and(|clock| clock.synchronised);
    let session = (number() as u16).max(1);
    Codec::Stamp { session, error_estimate: ErrorEstimate::new(error, synchronised) }
}

/// How far this host's clock may be off, in ns; `None` where it is not synchronised.
pub(super) fn own_error_ns() -> Option<u64> {
    let clock = kernel_clock().ok().filter(|clock| clock.synchronised)?;
    u64::try_from(clock.maximum_error.as_ns()).ok()
}

/// Asks the far end who it is.
pub(super) fn find(options: &PathUdpOptions, to: SocketAddr) -> Result<Found, PathError> {
    let failed = |source| PathError::Socket { address: to, source };
    let socket = connected(options, to).map_err(failed)?;
    let mtu = socket.path_mtu(to).map_err(failed)?;
    if options.is_stamp {
        socket.set_hop_limit(to, SENDER_HOP_LIMIT).map_err(failed)?;
        reflected(&socket, to, &stamp_codec())?;
        return Ok(Found { same_clock: false, clock_error_ns: None, mtu });
    }
    let welcome = hello(&socket, to, 0)?;
    let apart = welcome.error_ns.zip(own_error_ns()).map(|(far, own)| far.saturating_add(own));
    let clock_error_ns = if welcome.same_clock { Some(0) } else { apart };
    // There is no session to end: the far end remembers one from its first probe on.
    Ok(Found { same_clock: welcome.same_clock, clock_error_ns, mtu })
}

pub(super) fn check(options: &PathUdpOptions) -> Result<(), PathError> {
    let min = options.length_min();
    let (rows, flows) = (&options.rows, options.flows);
    if !(1..=1_000).contains(&rows.len()) {
        return Err(PathError::Rows(rows.len()));
    }
    let lengths = rows.iter().map(|row| row.length).chain([options.load_length]);
    if let Some(length) = lengths.into_iter().find(|one| !(min..=LENGTH_MAX).contains(one)) {
        return Err(PathError::Length { length, min });
    }
    if let Some(row) = rows.iter().find(|row| !(0.0..=10_000.0).contains(&row.load_ratio)) {
        return Err(PathError::LoadRatio(row.load_ratio));
    }
    if options.is_stamp && rows.iter().any(|row| row.load_ratio > 0.0) {
        return Err(PathError::StampLoad);
    }
    if !(1..=FLOWS_MAX).contains(&flows) {
        return Err(PathError::Flows(flows));
    }
    for count in options.count.into_iter().chain([options.warm_up.max(1)]) {
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(PathError::Count(count));
        }
    }
    if let Some(rate) = options.rate.filter(|rate| !(1.0..=10e6).contains(rate)) {
        return Err(PathError::Rate(rate));
    }
    if options.dscp > 63 {
        return Err(PathError::Dscp(options.dscp));
    }
    if !(Duration::from_millis(1)..=Duration::from_mins(1)).contains(&options.timeout) {
        return Err(PathError::Timeout);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::path::serve::FarEnd;
    use crate::path::serve::udp::{ListenOptions, listen};

    /// Ending a session that was never begun took as long as giving up a far end.
    #[test]
    fn a_far_end_that_answers_is_found_without_a_wait() {
        let mut far = FarEnd::new();
        let address = "127.0.0.1:0".parse().unwrap();
        let options = ListenOptions { address, busy_polling: false, rate_max: 1_000 };
        listen(&mut far, &options).unwrap();
        let at = far.parts()[0].address;
        let options = PathUdpOptions::new(at.to_string().parse().unwrap());
        let begun = Instant::now();
        let found = find(&options, at).unwrap();
        let took = begun.elapsed();
        assert!(found.same_clock && took < Duration::from_secs(1), "{took:?}");
        let _ = far.end();
    }
}
