//! Checks of options and their combinations, which need no target and no engine.

use std::time::Duration;

use horolog_record::LoadEngineKind as Kind;

use super::compliant_clients;
use crate::clients::LANES_MAX;
use crate::engine::{self, EngineError};
use crate::error::LoadError;
use crate::mix;
use crate::options::{LoadOptions, LoadProcedure};
use crate::schedule;
use crate::token::TIME_BITS;

/// Refuses options that are invalid for any target and engine.
pub(super) fn check_options(options: &LoadOptions) -> Result<(), LoadError> {
    mix::check_mix(options)?;
    if let Some(threads) = options.threads
        && !(1..=LANES_MAX).contains(&threads)
    {
        return Err(LoadError::Threads(threads));
    }
    if options.fairness && options.random_sources {
        return Err(LoadError::Fairness);
    }
    if let Some(compliant) = &options.compliant_clients {
        compliant_clients::check_options(compliant, options)?;
    }
    for requests in options.requests.kinds() {
        requests.behaviour().check_options(options)?;
    }
    let timeout = options.reply_timeout;
    // A token holds 68 s of the intended send time.
    let longest = Duration::from_mins(1);
    debug_assert!(longest.as_nanos() < 1 << TIME_BITS);
    if timeout < Duration::from_millis(1) || timeout > longest {
        return Err(LoadError::ReplyTimeout(timeout));
    }
    Ok(())
}

/// Refuses rates for which no schedule exists, with one lane or all of them.
pub(super) fn check_rates(options: &LoadOptions, cores: usize) -> Result<(), EngineError> {
    for share in options.requests.shares() {
        check_job_rates(&options.job.scaled(share), options, cores)?;
    }
    Ok(())
}

fn check_job_rates(
    job: &LoadProcedure,
    options: &LoadOptions,
    cores: usize,
) -> Result<(), EngineError> {
    let (rates, duration) = match job {
        LoadProcedure::Ramp(ramp) => ([ramp.min, ramp.max], ramp.duration),
        LoadProcedure::Search { config, .. } => {
            ([config.min_rate, config.max_rate], config.final_duration)
        }
        LoadProcedure::Profile(profile) => {
            ([profile.rate_min(), profile.rate_max()], profile.duration())
        }
        LoadProcedure::Overload(rate) => {
            let overload_test = options.overload_test.unwrap_or_default();
            ([rate * overload_test.base, rate * overload_test.factor], overload_test.time)
        }
    };
    for rate in rates {
        for lanes in [1, options.threads.unwrap_or(cores).max(1)] {
            schedule::interval(rate, lanes)
                .ok_or(EngineError::Rate { rate, duration_s: duration.as_secs_f64() })?;
        }
    }
    Ok(())
}

/// Refuses an engine that does not support the options.
pub(super) fn check_engine(kind: Kind, options: &LoadOptions) -> Result<(), EngineError> {
    let mut on_fixed_ports =
        options.requests.kinds().filter(|requests| requests.behaviour().fixed_port().is_some());
    let (reason, remedy) = match kind {
        Kind::Udp if on_fixed_ports.nth(1).is_some() => {
            ("sockets on the PTP ports support one kind of request only", "use --engine packet")
        }
        Kind::Udp if options.compliant_clients.is_some() => (
            "all its clients have one address, so compliant clients would share it",
            "use --engine packet or xdp for --compliant-clients",
        ),
        Kind::Xdp => match unsupported_by_xdp(options) {
            Some(unsupported) => unsupported,
            None => return Ok(()),
        },
        Kind::Udp | Kind::Packet => return Ok(()),
    };
    Err(engine::unavailable_error(kind, reason.to_owned(), remedy))
}

/// Returns a requested feature that the XDP engine lacks, as reason and remedy; `None` if it
/// supports the options.
fn unsupported_by_xdp(options: &LoadOptions) -> Option<(&'static str, &'static str)> {
    let by_requests =
        options.requests.kinds().find_map(|kind| kind.behaviour().unsupported_by_xdp());
    if by_requests.is_some() {
        by_requests
    } else if options.offset.is_some_and(|offset| offset.hardware) {
        let remedy = "use --engine packet or udp with hardware timestamps";
        Some(("it uses its own timestamps instead of the NIC's", remedy))
    } else if options.capture.is_some() {
        let remedy = "use --engine packet or udp with --pcap";
        Some(("packet taps do not see packets sent or received by XDP", remedy))
    } else {
        None
    }
}
